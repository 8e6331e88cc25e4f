// A language model of subwords from documents to its uses: bits per byte, sampled text, likelihoods.
#include <cmath>

#include "packed.h"
#include "process/run_fixture.h"
#include "runfiles/checkpoint.h"

namespace lmx_test {
namespace {

class SubwordsRun : public RunTest {
 protected:
  SubwordsRun() {
    std::string jsonl;
    for (int i = 0; i < 400; ++i)
      jsonl += R"({"id": 1, "text": "The cat )" + std::to_string(i * 7919 % 1000) +
               R"( sat on the m\u00e4t.\n\nIt \"slept\"."})"
               "\n";
    write("a.jsonl.zst", zstd(jsonl));
    write_recipe("{name: text, tokens: subwords, field: text, files: ['" + path("*.jsonl.zst") +
                 "'], vocab_size: 300, valid_fraction: 0.1, test_fraction: 0.1}");
  }
  void write_recipe(const std::string& data) const {
    write("tiny.yaml", "data: " + data + "\nbatcher: {name: tbptt, sequence_length: 8}\nbatch: {global: 4}\n" +
                           "model: {name: lstm, embedding: 8, cells: 12}\nloss: {name: full_softmax}\n" +
                           "optimizer: {name: adam, lr: 0.01}\ntrain: {steps: 40, eval_batch: 4}\nthreads: 1\n");
  }
  Outcome good(Words words) const {
    Outcome o = run_lmx(std::move(words), environment());
    EXPECT_THAT(o, Succeeds());
    return o;
  }
};

TEST_F(SubwordsRun, BitsPerByteAreExact) {
  const Outcome trained = run("a");
  ASSERT_THAT(trained, Succeeds());
  const double bpb = number_behind(trained.out, "valid bpb");
  EXPECT_THAT(read_file(path("a/metrics.jsonl")), Names("\"bpb\":", "subwords_per_s"));
  EXPECT_NEAR(number_behind(good({"eval", path("a"), "--split", "valid"}).out, "valid bpb"), bpb, 1e-4);

  // By hand: the bits of all targets over the bytes of all documents. The first token, which nothing predicts, has
  // none.
  const Json test = Json::parse(good({"eval", path("a"), "--split", "test", "--json"}).out);
  const std::string stats = good({"data", "stats", path("tiny.yaml")}).out;
  const Match row = first_match(stats, "test +([0-9]+) +([0-9]+) +([0-9]+)");
  ASSERT_FALSE(row.empty()) << stats;
  const double tokens = std::stod(row[2]), bytes = std::stod(row[3]);
  EXPECT_EQ(test["tokens"].get<double>(), tokens - 1);
  EXPECT_NEAR(test["bpb"].get<double>(), test["nll_bit"].get<double>() * (tokens - 1) / bytes, 1e-9);
  EXPECT_THAT(stats, Names("DOCUMENTS", "BYTES / TOKEN", "300 subwords"));

  // Ranks and a resume see the same text.
  EXPECT_NEAR(number_behind(run("two", {"comm={name: virtual, ranks: 3}"}).out, "valid bpb"), bpb, 1e-4);
  ASSERT_THAT(run("b", {"--until", "23"}), Succeeds());
  EXPECT_EQ(number_behind(run("b", {"--resume", path("b")}).out, "valid bpb"), bpb);
}

TEST_F(SubwordsRun, ARunNeedsNeitherItsDataNorTheCache) {
  ASSERT_THAT(run("a"), Succeeds());
  std::filesystem::remove_all(path("cache"));
  std::filesystem::remove(path("a.jsonl.zst"));
  write("new.txt", "The cat 7 sat on the m\xC3\xA4t.\n\nIt slept.\n");
  write("new.jsonl", R"({"text": "The cat 7 sat on the m\u00e4t.\n\n"})"
                     "\n"
                     R"({"text": "It slept.\n"})"
                     "\n");
  const Json text = Json::parse(good({"eval", path("a"), "--text", path("new.txt"), "--json"}).out);
  const Json records =
      Json::parse(good({"eval", path("a"), "--text", path("new.jsonl"), "--field", "text", "--json"}).out);
  EXPECT_EQ(text["bpb"], records["bpb"]);  // two paragraphs, two records
  EXPECT_EQ(text["unknown"], 0);
  const double bits = text["nll_bit"].get<double>() * text["tokens"].get<double>();
  EXPECT_NEAR(text["bpb"].get<double>(), bits / static_cast<double>(read_file(path("new.txt")).size()), 1e-9);
  const std::string prompt = "The cat  7\n";
  EXPECT_EQ(good({"generate", path("a"), "--prompt", prompt, "--tokens", "9"}).out.substr(0, prompt.size()), prompt);
  EXPECT_NE(good({"generate", path("a"), "--tokens", "9"}).out, "");
  write("lines.txt", "The cat 7 sat\nIt slept.\n\n");
  const std::string scores = good({"score", path("a"), path("lines.txt")}).out;
  EXPECT_EQ(std::count(scores.begin(), scores.end(), '\n'), 3);
  std::filesystem::remove(path("a/codecs.json"));
  EXPECT_THAT(run_lmx({"generate", path("a")}, environment()), Refuses("codecs.json", "missing"));
}

// Files of ids need no text, and without a tokenizer there is none.
TEST_F(SubwordsRun, FilesOfIdsAreTrainedOnAsTheyAre) {
  std::string ids;
  for (int i = 0; i < 4000; ++i) ids += {static_cast<char>(i % 97), static_cast<char>(i % 2)};
  write("ids.bin", ids);
  write_recipe("{name: tokens, format: raw16, train: ['" + path("ids.bin") + "'], valid: ['" + path("ids.bin") +
               "'], vocab_size: 400}");
  const Outcome trained = run("ids");
  ASSERT_THAT(trained, Prints(testing::Not(testing::HasSubstr("bpb"))));
  EXPECT_THAT(trained.out, testing::Not(testing::HasSubstr("lmx generate"))) << "it has no text";
  const std::string sizes = good({"data", "stats", path("tiny.yaml")}).out;
  EXPECT_THAT(sizes, testing::ContainsRegex("train +- +4000 +- +- +-\n"));
  EXPECT_EQ(number_behind(good({"eval", path("ids"), "--split", "valid"}).out, "valid ppl"),
            number_behind(trained.out, "valid ppl"));
  EXPECT_THAT(run_lmx({"generate", path("ids")}, environment()), Refuses("tokenizer_file"));
}

TEST_F(SubwordsRun, StatisticsOfIdsAreThoseOfTheirText) {
  const auto row = [&] {
    const std::string out = good({"data", "stats", path("tiny.yaml")}).out;
    const size_t at = out.find("\nvalid ");
    return out.substr(at, out.find('\n', at + 1) - at);
  };
  const std::string text = row();
  ASSERT_EQ(run("a", {"train.steps=1"}).code, 0);
  std::filesystem::path prepared;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("")))
    if (entry.path().filename() == "valid.bin") prepared = entry.path();
  constexpr size_t kHeader = 64;
  write("ids.bin", read_file(prepared).substr(kHeader));
  const std::string model = (prepared.parent_path() / "subwords.model").string();
  write_recipe("{name: tokens, format: raw32, train: ['" + path("ids.bin") + "'], valid: ['" + path("ids.bin") +
               "'], tokenizer_file: '" + model + "'}");
  EXPECT_EQ(row(), text);
}

TEST_F(SubwordsRun, SeparateDocumentsNeedATokenBetweenThem) {
  const std::string recipe =
      replaced(read_file(path("tiny.yaml")), "model: .*", "model: {name: gpt, layers: 1, d: 8, heads: 2}");
  write("tiny.yaml",
        replaced(recipe, "batcher: .*", "batcher: {name: packed_windows, sequence_length: 32, documents: separate}"));
  ASSERT_THAT(run("a"), Succeeds());
  const Json valid = Json::parse(good({"eval", path("a"), "--split", "valid", "--json"}).out);
  EXPECT_NEAR(valid["nll_nat"].get<double>(),
              number_in(read_file(path("a/metrics.jsonl")), R"("split": ?"valid".*"nll_nat": ?([0-9.]+))"), 1e-6);
  write("valid.txt", "The cat 7 sat.\n\nIt slept.\n\nThe cat sat.\n");
  const std::string apart = good({"eval", path("a"), "--text", path("valid.txt"), "--json"}).out;
  write("a/config.yaml", replaced(read_file(path("a/config.yaml")), "separate", "join"));
  const std::string joined = good({"eval", path("a"), "--text", path("valid.txt"), "--json"}).out;
  EXPECT_EQ(Json::parse(apart)["tokens"], Json::parse(joined)["tokens"]);
  EXPECT_NE(Json::parse(apart)["nll_nat"], Json::parse(joined)["nll_nat"]);
  for (const char* more : {"threads=1", "--dry-run"}) {
    const Outcome none = run("none", {"data.document_token=none", more});
    EXPECT_EQ(none.code, 2);
    EXPECT_THAT(none.out + none.err, Names("packed_windows", "separates documents", "text", "no token between them"));
  }
}

TEST_F(SubwordsRun, WithoutATokenBetweenDocumentsTheProposedTextHasAPrompt) {
  const Outcome o = run("a", {"data.document_token=none"});
  ASSERT_THAT(o, Prints("generate " + path("a") + " --prompt The --tokens 40\n"));
  for (const std::string& line : proposed(o.out))
    EXPECT_THAT(run_process({"/bin/sh", "-c", line}, environment_with_lmx()), Succeeds()) << line;
}

TEST_F(SubwordsRun, BitsPerByteEndARun) {
  EXPECT_THAT(run("early", {"train.eval_every=5", "stop.when='valid.bpb <= 6'"}), Prints("stopped at valid.bpb"));
  EXPECT_THAT(run("words", {"data.tokens=words", "stop.when='valid.bpb <= 6'"}),
              Refuses("stop.when", "valid.bpb", "subwords", "valid.nll_bit"));
}

}  // namespace
}  // namespace lmx_test
