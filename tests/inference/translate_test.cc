// A translation run from raw text to BLEU, with the commands of a user.
#include <cmath>

#include "process/run_fixture.h"

namespace lmx_test {
namespace {

class TranslateCommands : public RunTest {
 protected:
  void SetUp() override {
    std::string source, target;
    for (int i = 0; i < 300; ++i) {
      source += "The " + word(i) + " sees a " + word(i * 7 + 1) + ".\n";
      target += "Der " + word(i) + "er sieht einen " + word(i * 7 + 1) + "en.\n";
    }
    write("a.en", source);
    write("a.de", target);
    write("mt.yaml",
          "data: {name: parallel, source_language: en, target_language: de, vocab_size: 100, source_files: [" +
              path("a.en") + "], target_files: [" + path("a.de") +
              "], valid_fraction: 0.1, test_fraction: 0.1}\n"
              "batcher: {name: token_budget, max_tokens: 300}\nbatch: {global: 1}\n"
              "model: {name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 32, heads: 2}\n"
              "loss: {name: full_softmax, label_smoothing: 0.1}\noptimizer: {name: adam, lr: 0.01}\n"
              "train: {steps: 40, eval_every: 10, final_bleu: test}\ncheckpoint: {every: 10, keep_last: 4}\nthreads: "
              "1\n");
    const Outcome o = lmx({"run", path("mt.yaml"), "run.dir=" + path("mt")});
    ASSERT_THAT(o, Succeeds());
    result_ = o.out;
  }
  static std::string word(int i) {
    const char* parts[] = {"ba", "ko", "li", "mu", "ter", "gan", "sol"};
    return std::string(parts[i % 7]) + parts[i / 7 % 7] + parts[i / 49 % 7];
  }
  std::string result_;
};

TEST_F(TranslateCommands, FromRawTextToBleu) {
  const size_t at = result_.rfind("test BLEU ");
  ASSERT_NE(at, std::string::npos) << result_;
  const std::string bleu = result_.substr(at);
  EXPECT_EQ(std::count(bleu.begin(), bleu.end(), '\n'), 1);  // the last line
  EXPECT_THAT(result_, HasSubstr("test BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:lmx-"));
  EXPECT_THAT(result_, AllOf(Names("  lmx report " + path("mt") + "\n", "| lmx translate " + path("mt") + "\n"),
                             testing::Not(HasSubstr("lmx generate"))));
  Outcome o = lmx({"eval", path("mt"), "--split", "test"});
  ASSERT_THAT(o, Prints(HasSubstr("checkpoint step-40\n"), HasSubstr("test nll_nat "), HasSubstr("test ppl "),
                        HasSubstr("test multi-bleu BLEU = "), HasSubstr("test multi-bleu-split BLEU = "),
                        testing::ContainsRegex("\ntest word_ppl [0-9.e+]+ \\([0-9]+ words, as they were before "
                                               "subwords, and ends of sentences; 0 with <unk>\\)\n"),
                        testing::EndsWith(bleu)));
  o = lmx({"eval", path("mt"), "--no-bleu"});
  EXPECT_EQ(o.out.find("BLEU"), std::string::npos);
  // Averages of checkpoints are translated and evaluated like checkpoints.
  o = lmx({"average", path("mean.safetensors"), "--last", "3", path("mt")});
  ASSERT_THAT(o, Prints("step-20\n", "step-40\n", "wrote"));
  EXPECT_THAT(lmx({"average", path("best.safetensors"), "--best", "2", path("mt")}), Succeeds());
  o = lmx({"eval", path("mt"), "--split", "test", "--checkpoint", path("mean.safetensors"), "--beam", "2"});
  ASSERT_THAT(o, Prints("test BLEU "));
  write("in.txt", "The baba sees a sol.\n\nThe ko.\n");
  o = lmx({"translate", path("mt"), "--checkpoint", path("mean.safetensors"), "--input", path("in.txt"), "--max-length",
           "0,9"});
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 3);
  o = lmx({"score", path("mt"), path("a.en"), path("a.de")});
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 300);
}

TEST_F(TranslateCommands, ThreadsThatSearchSeparateBatchesChangeNoBit) {
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += "The " + word(i * 5) + (i % 3 ? "" : " sees a " + word(i)) + ".\n";
  write("in.txt", lines);
  const Words words{"translate", path("mt"), "--input", path("in.txt"), "--batch", "8", "--n-best", "2", "--json"};
  const Outcome one = lmx(words);
  ASSERT_THAT(one, Succeeds());
  std::string config = read_file(path("mt/config.yaml"));
  const size_t at = config.find("\nthreads: 1");
  ASSERT_NE(at, std::string::npos) << config;
  write("mt/config.yaml", config.replace(at, 11, "\nthreads: 3"));
  EXPECT_EQ(lmx(words).out, one.out);
}

TEST_F(TranslateCommands, JsonHoldsWhatTheTextDoes) {
  write("in.txt", "The baba sees a sol.\n\nThe \"ko\".\n");
  const Words words{"translate", path("mt"), "--input", path("in.txt"), "--max-length", "0,9"};
  const auto with = [&](const Words& more) {
    const Outcome o = lmx(joined(words, more));
    EXPECT_THAT(o, Succeeds());
    return o.out;
  };
  std::istringstream texts(with({})), objects(with({"--json", "--n-best", "2"})),
      written(with({"--json", "--output", path("o")}));
  std::string text, object;
  for (int line = 0; line < 3; ++line) {
    ASSERT_TRUE(std::getline(texts, text) && std::getline(objects, object));
    const Json json = Json::parse(object);
    EXPECT_EQ(json["line"], line);
    const Json& best = json["translations"][0];
    EXPECT_EQ(best["text"], text);
    for (const char* key : {"tokens", "logprob", "score", "length"}) EXPECT_TRUE(best.contains(key)) << key;
    if (line == 1) continue;  // line 1 is empty
    ASSERT_EQ(json["translations"].size(), 2u);
    EXPECT_GE(best["score"], json["translations"][1]["score"]);
    // The normalisation fairseq:0.6, exact to the last digit.
    EXPECT_NEAR(best["score"].get<double>(),
                best["logprob"].get<double>() / std::pow(best["length"].get<double>(), 0.6), 1e-12);
  }
  EXPECT_FALSE(std::getline(objects, object));
  const std::string file = read_file(path("o"));
  EXPECT_EQ(std::count(file.begin(), file.end(), '\n'), 3);
  // Scores, with more digits than in the text output.
  std::istringstream sums(lmx({"score", path("mt"), path("a.en"), path("a.de")}).out),
      numbers(lmx({"score", path("mt"), path("a.en"), path("a.de"), "--json"}).out);
  for (int line = 0; line < 300; ++line) {
    double mean = 0, sum = 0;
    int64_t tokens = 0;
    ASSERT_TRUE((sums >> mean >> sum >> tokens) && std::getline(numbers, object));
    const Json json = Json::parse(object);
    EXPECT_EQ(json["line"], line);
    EXPECT_EQ(json["tokens"], tokens);
    EXPECT_NEAR(json["sum"].get<double>(), sum, 1e-6);
    EXPECT_EQ(json["mean"].get<double>(), json["sum"].get<double>() / static_cast<double>(tokens));
  }
  std::getline(
      std::istringstream(lmx({"score", path("mt"), path("a.en"), path("a.de"), "--max-length", "2", "--json"}).out),
      object);
  EXPECT_EQ(Json::parse(object)["sum"], "-Infinity");
  // An evaluation contains the scores as numbers.
  const Outcome o = lmx({"eval", path("mt"), "--split", "test", "--json"});
  const Json eval = Json::parse(o.out);
  EXPECT_EQ(eval["unit"], "subword");
  EXPECT_GT(eval["words"]["words"], 0);
  EXPECT_NEAR(eval["translation"]["BLEU"].get<double>(), std::stod(result_.substr(result_.rfind("test BLEU ") + 10)),
              0.006);
}

// Its segmentation into subwords alone would take a minute.
TEST_F(TranslateCommands, ALineOfMegabytesIsRefused) {
  write("long.txt", "A word.\n" + std::string(18'000'000, 'a') + "\n");
  for (const Words& words : {Words{"translate", path("mt"), "--input", path("long.txt")},
                             {"translate", path("mt"), "--input", path("long.txt"), "--json"},
                             {"score", path("mt"), path("long.txt"), path("long.txt")}}) {
    EXPECT_THAT(lmx(words), Refuses(path("long.txt") + ":2: ", "18000000 bytes"));
  }
}

TEST_F(TranslateCommands, BleuIsARecordOfTheRun) {
  const auto last_line = [&] {
    const std::string text = read_file(folder_ / "mt/metrics.jsonl");
    const size_t begin = text.rfind('\n', text.size() - 2) + 1;
    return text.substr(begin, text.size() - 1 - begin);
  };
  const auto record = nlohmann::json::parse(last_line());
  EXPECT_EQ(record["step"], 40);
  EXPECT_EQ(record["split"], "test");
  char bleu[32];
  std::snprintf(bleu, sizeof bleu, "test BLEU %.2f", record["BLEU"].get<double>());
  EXPECT_THAT(lmx({"eval", path("mt"), "--split", "test"}).out, HasSubstr(bleu));
  Outcome o = lmx({"report", path("mt")});
  EXPECT_THAT(o, Prints(testing::ContainsRegex("\ntest BLEU +[0-9.e-]+ +40\n"),
                        testing::ContainsRegex("\ntest multi-bleu +[0-9.e-]+ +40\n"),
                        testing::ContainsRegex("\ntest multi-bleu-split +[0-9.e-]+ +40\n"),
                        testing::ContainsRegex("\nbest valid ppl +[0-9.]+ +[1-4]0\n")));
  const auto json = nlohmann::json::parse(lmx({"report", path("mt"), "--json"}).out);
  EXPECT_EQ(json["translation"]["BLEU"], record["BLEU"]);
  // If the completed run is started again, the record exists once.
  const std::string before = read_file(folder_ / "mt/metrics.jsonl");
  o = lmx({"run", path("mt/config.yaml"), "run.dir=" + path("mt"), "--resume", path("mt")});
  EXPECT_THAT(o, Succeeds());
  EXPECT_EQ(read_file(folder_ / "mt/metrics.jsonl"), before);
}

TEST_F(TranslateCommands, RunsEndWithTheMeanOfTheirLastCheckpoints) {
  const Outcome again =
      lmx({"run", path("mt/config.yaml"), "run.dir=" + path("mt"), "--resume", path("mt"), "train.final_average=3"});
  ASSERT_THAT(again, Prints("last 3 checkpoints", path("mt/mean.safetensors")));
  ASSERT_THAT(lmx({"average", path("by_hand.safetensors"), "--last", "3", path("mt")}), Succeeds());
  EXPECT_TRUE(read_file(path("mt/mean.safetensors")) == read_file(path("by_hand.safetensors")));
  const std::string by_hand =
      lmx({"eval", path("mt"), "--split", "test", "--checkpoint", path("by_hand.safetensors")}).out;
  const size_t bleu = by_hand.rfind("test BLEU ");
  ASSERT_NE(bleu, std::string::npos) << by_hand;
  EXPECT_THAT(again.out, testing::EndsWith(by_hand.substr(bleu)));
  EXPECT_THAT(read_file(path("mt/metrics.jsonl")), HasSubstr("\"averaged\":3"));
}

// The commands of docs/data.md, unchanged: each reads the output of the one before it.
TEST_F(TranslateCommands, FromACrawlToItsBestPairs) {
  std::string script = "cd '" + folder_.string() + "'\n";
  std::istringstream page(read_file(source_path("/docs/data.md")));
  int commands = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("lmx data filter --tsv") && !line.starts_with("lmx score RUN --tsv") &&
        !line.starts_with("lmx data top --k 140000000"))
      continue;
    if (const size_t at = line.find("RUN "); at != std::string::npos) line.replace(at, 3, "mt --max-length 50");
    if (const size_t at = line.find("140000000"); at != std::string::npos) line.replace(at, 9, "41");
    script += line.substr(0, line.find('#')) + " || exit\n";
    ++commands;
  }
  ASSERT_EQ(commands, 3) << script;
  std::filesystem::create_directories(folder_ / "raw");
  std::string crawl;
  for (int i = 0; i < 40; ++i)
    crawl +=
        "The " + word(i) + " sees.\tDer " + word(i) + "er sieht.\nThe copy " + word(i) + "\tThe copy " + word(i) + "\n";
  std::string source, target;
  for (int i = 0; i < 400; ++i) source += word(i), target += word(i + 1);
  crawl += source + "\t" + target + "\n" + target + "\tko\n";
  write("raw/part-1.tsv", crawl);
  ASSERT_THAT(run_process({"/bin/bash", "-c", "gzip " + path("raw/part-1.tsv")}), Succeeds());
  std::map<std::string, std::string> more = environment();
  more["PATH"] = build_path("/bin:") + std::getenv("PATH");
  const Outcome o = run_process({"/bin/bash", "-c", script}, more);
  ASSERT_THAT(o, Prints("42 of 82 pairs", "41 of 42 pairs", "-inf\n", "2 pairs", "1 of them"));
  EXPECT_THAT(o.err, Names("2 pairs", "50 tokens"));
  const Outcome best = run_process({"/bin/bash", "-c", "zcat " + path("best.tsv.gz") + " | wc -l"});
  EXPECT_EQ(best.out, "41\n");
}

TEST_F(TranslateCommands, RefuseWithOneMessage) {
  const auto refused = [&](Words words, const NamesMatcher& facts) {
    EXPECT_THAT(lmx(std::move(words)), Refuses(facts));
  };
  refused({"translate", path("mt"), "--length-penalty", "gnmt:1"}, Names("fairseq, wu, none"));
  refused({"translate", path("mt"), "--max-length", "5"}, Names("a,b"));
  refused({"translate", path("mt"), "--n-best", "9"}, Names("n-best", "4, got 9"));
  refused({"translate", path("mt"), "--replace-unknown", "copie"}, Names("'copy'?"));
  refused({"translate", path("mt"), "--checkpoint", "41"}, Names("last, best", "10, 20, 30, 40"));
  refused({"average", path("x"), "--last", "5", path("mt")}, Names("5 checkpoints", "keeps 4", "keep_last=5"));
  refused({"average", path("x"), "--last", "5", path("mt"), path("mt")}, Names("one run"));
  ASSERT_THAT(run("lm", {"train.steps=2", "train.ema=0"}), Succeeds());
  refused({"translate", path("lm")}, Names("language model"));
  refused({"generate", path("mt")}, Names("lmx translate " + path("mt")));
  refused({"run", path("tiny.yaml"), "run.dir=" + path("b"), "+train.final_bleu=test"},
          Names("train.final_bleu", "not translate", "none"));
  refused({"run", path("tiny.yaml"), "run.dir=" + path("b"), "+train.final_bleu=test", "+train.final_average=3"},
          Names("3 checkpoints", "checkpoint.keep_last is 2"));
  EXPECT_FALSE(fs::exists(path("b")));
}

TEST_F(TranslateCommands, NeedTheRunAlone) {
  write("in.txt", "The baba sees a sol.\n");
  const Outcome before = lmx({"translate", path("mt"), "--input", path("in.txt")});
  fs::rename(path("mt"), path("moved"));
  fs::remove(path("a.en"));
  fs::remove_all(path("cache"));
  const Outcome o = lmx({"translate", path("moved"), "--input", path("in.txt")});
  EXPECT_THAT(o, Succeeds());
  EXPECT_EQ(o.out, before.out);
  fs::remove(path("moved/codecs.json"));
  EXPECT_THAT(lmx({"translate", path("moved"), "--input", path("in.txt")}).err, Names("codecs.json"));
}

}  // namespace
}  // namespace lmx_test
