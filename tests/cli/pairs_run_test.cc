// Runs on parallel text as a user starts them: training, ranks, a resume, the report's charts, and what goes wrong.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "run_fixture.h"

namespace lmx_test {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kPairs = R"(
batcher: {name: token_budget, max_tokens: 60}
batch: {global: 4}
model: {name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 32, heads: 2, dropout: 0.1}
loss: {name: full_softmax, label_smoothing: 0.1, bias: false}
optimizer: {name: adam, lr: 0.01, betas: [0.9, 0.98]}
schedule: {name: inverse_sqrt, warmup: 10}
train: {steps: 24, log_every: 4, eval_every: 12, eval_batch: 8}
checkpoint: {every: 6, keep_last: 9}
threads: 1
)";

class PairsRun : public RunTest {
 protected:
  PairsRun() {
    const char* const en[] = {"one", "two", "red", "green", "dog", "cat", "house", "tree", "runs", "sleeps"};
    const char* const de[] = {"ein", "zwei", "rot", "gruen", "Hund", "Katze", "Haus", "Baum", "laeuft", "schlaeft"};
    std::string text;
    for (unsigned i = 0, state = 7; i < 500; ++i) {
      std::string source, target;
      for (unsigned w = 0, words = 2 + i % 7; w < words; ++w) {
        state = state * 1103515245u + 12345u;
        source += std::string(w ? " " : "") + en[state / 65536 % 10];
        target += std::string(w ? " " : "") + de[state / 65536 % 10];
      }
      text += source + " .\t" + target + " .\n";
    }
    write("pairs.tsv", text);
    data_ = "data: {name: parallel, source_language: en, target_language: de, vocab_size: 90, files: [" +
            path("pairs.tsv") + "], valid_fraction: 0.1}";
    use("");
  }
  // The recipe with one of its lines replaced.
  void use(const std::string& line) const {
    std::istringstream lines(data_ + kPairs);
    std::string text;
    for (std::string l; std::getline(lines, l);)
      text += (!line.empty() && l.starts_with(line.substr(0, line.find(':') + 1)) ? line : l) + "\n";
    write("tiny.yaml", text);
  }
  std::vector<Json> records(const std::string& dir, const std::string& split) const {
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    std::vector<Json> all;
    for (std::string line; std::getline(lines, line);)
      if (const Json json = Json::parse(line); json["split"] == split) all.push_back(json);
    return all;
  }
  std::string data_;
};

TEST_F(PairsRun, TrainsTellsAndReports) {
  const Outcome o = run("a", {"--ranks", "2"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("batch 4 sub-batches, 2 a rank = "), HasSubstr("sub-batches of "),
                           HasSubstr("target tokens (at most 60); padding would be")));
  EXPECT_THAT(o.out, AllOf(HasSubstr("valid nll_nat "), HasSubstr("valid nll_bit "), HasSubstr("valid ppl ")));
  EXPECT_THAT(read_file(folder_ / "a" / "log.txt"), AllOf(HasSubstr(" padding "), HasSubstr(" step_spread ")));
  const auto valid = records("a", "valid");
  EXPECT_LT(valid.back()["nll_nat"], valid.front()["nll_nat"]);
  const auto ranks = records("a", "rank");
  ASSERT_EQ(ranks.size(), 12u);
  double counted = 0;
  for (const Json& r : ranks)
    for (const auto& [key, value] : r.items()) counted += key.starts_with("sub_batch_s/") ? value.get<double>() : 0;
  EXPECT_NEAR(counted, 24 * 4, 3 * 2);  // each sub-batch once; an epoch's last step may lack some

  const Outcome r =
      run_process({LMX_BINARY_DIR "/bin/lmx", "report", path("a"), "--charts", path("charts")}, environment());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out,
              AllOf(HasSubstr("SUB-BATCHES"), HasSubstr("padding would be"), HasSubstr("slowest rank above the mean")));
  EXPECT_THAT(read_file(folder_ / "charts" / "sub_batch_times.svg"),
              AllOf(HasSubstr("<svg"), HasSubstr("90 % within")));
  EXPECT_THAT(read_file(folder_ / "charts" / "timeline.svg"), AllOf(HasSubstr("rank 1"), HasSubstr("target tokens")));
  const Json trace = Json::parse(read_file(folder_ / "charts" / "timeline.json"));
  size_t computed = 0;
  for (const Json& event : trace["traceEvents"]) computed += event["ph"] == "X" && event["cat"] == "compute" ? 1 : 0;
  EXPECT_GE(computed, 2u);
}

TEST_F(PairsRun, AResumedRunIsTheRun) {
  for (const std::string batcher : {"token_budget", "time_balanced"}) {
    const std::string dir = batcher.substr(0, 4), name = "batcher.name=" + batcher;
    ASSERT_EQ(run(dir, {name, "train.steps=13"}).code, 0);
    const Outcome o = run(dir, {name, "--resume", path(dir)});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(std::filesystem::exists(folder_ / dir / "sub_batch_times.json") == (dir == "time"));
    if (dir == "time") continue;  // another run would measure other times
    ASSERT_EQ(run("whole", {name}).code, 0);
    EXPECT_EQ(read_file(folder_ / dir / "checkpoints/step-24/model.safetensors"),
              read_file(folder_ / "whole" / "checkpoints/step-24/model.safetensors"));
  }
}

TEST_F(PairsRun, HalfPrecisionTellsItsOverflows) {
  const Outcome o = run("a", {"precision=fp16", "+loss_scale.init=1e9", "+stop.when=\"valid.nll_bit <= 99\""});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr(" overflows, the last at step "), HasSubstr("loss scale now "),
                           HasSubstr("embedding.weight")));
  EXPECT_THAT(o.out, AllOf(HasSubstr("stopped at valid.nll_bit"), HasSubstr("time_to_target_s ")));
  EXPECT_THAT(o.err, HasSubstr("of training (validation and saving not counted)"));
  const auto train = records("a", "train");
  EXPECT_EQ(train.back()["step"], 12);
  EXPECT_GT(train.front()["overflows"], 0);
}

TEST_F(PairsRun, MistakesAreOneMessage) {
  Outcome o = run("a", {"batcher.max_tokens=3"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("[token_budget] sentence "), HasSubstr("more than batcher.max_tokens, 3"),
                           HasSubstr("too_long=skip")));
  use("model: {name: lstm, embedding: 8, cells: 8}");
  o = run("a");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("lstm does not translate"), HasSubstr("models that translate: transformer")));
  use("batcher: {name: tbptt, sequence_length: 5}");
  o = run("a");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("batchers of pairs: same_shape, time_balanced, token_budget"));
  use("data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 0, classes: 6}");
  o = run("a");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err,
              HasSubstr("transformer as configured here translates, and data synthetic is text of one language"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

TEST_F(PairsRun, AMissingCorpusSaysWhatCanBeDone) {
  auto nowhere = environment();
  nowhere["LMX_DATA_DIR"] = path("nowhere");
  const Outcome o = run_process(
      {LMX_BINARY_DIR "/bin/lmx", "run", LMX_SOURCE_DIR "/recipes/ott_wmt.yaml", "comm=self", "run.dir=" + path("a")},
      nowhere);
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("wmt16_en_de"), HasSubstr("is missing"), HasSubstr("lmx data fetch"),
                           HasSubstr("scale=desk")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

}  // namespace
}  // namespace lmx_test
