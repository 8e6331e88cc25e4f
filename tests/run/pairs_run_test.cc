// Runs on parallel text as a user starts them: training, ranks, a resume, the report's charts, and errors.
#include "comm/mpi_here.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

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
  // Writes the recipe with one of its lines replaced.
  void use(const std::string& line) const {
    std::istringstream lines(data_ + kPairs);
    std::string text;
    for (std::string l; std::getline(lines, l);)
      text += (!line.empty() && l.starts_with(line.substr(0, line.find(':') + 1)) ? line : l) + "\n";
    write("tiny.yaml", text);
  }
  // The values of the training records, without measured times.
  std::string curve(const std::string& dir) const {
    std::string text;
    for (const Json& r : records(dir, "train"))
      for (const char* key : {"step", "tokens", "nll_nat", "grad_norm", "padding"})
        text += std::string(key) + "=" + r[key].dump() + " ";
    return text;
  }
  // Copies a run as it was when checkpoint `step` was the last one.
  void cut(const std::string& from, const std::string& to, int64_t step) const {
    std::filesystem::copy(path(from), path(to), std::filesystem::copy_options::recursive);
    for (const auto& entry : std::filesystem::directory_iterator(path(to) + "/checkpoints"))
      if (std::stoll(entry.path().filename().string().substr(5)) > step) std::filesystem::remove_all(entry.path());
  }
  std::string data_;
};

TEST_F(PairsRun, TrainsTellsAndReports) {
  const Outcome o = run("a", {"--ranks", "2"});
  ASSERT_THAT(o, Warns("4 sub-batches", "2 a rank", "target tokens", "60", "padding"));
  EXPECT_THAT(o.out, Names("valid nll_nat ", "valid nll_bit ", "valid ppl "));
  EXPECT_THAT(read_file(folder_ / "a" / "log.txt"), Names(" padding ", " step_spread "));
  const auto valid = records("a", "valid");
  EXPECT_LT(valid.back()["nll_nat"], valid.front()["nll_nat"]);
  const auto ranks = records("a", "rank");
  ASSERT_EQ(ranks.size(), 12u);
  double counted = 0;
  for (const Json& r : ranks)
    for (const auto& [key, value] : r.items()) counted += key.starts_with("sub_batch_s/") ? value.get<double>() : 0;
  EXPECT_NEAR(counted, 24 * 4, 3 * 2);  // each sub-batch once; an epoch's last step may have fewer

  const Outcome r = lmx({"report", path("a"), "--charts", path("charts")});
  ASSERT_THAT(r, Prints("SUB-BATCHES", "padding", "slowest rank"));
  EXPECT_THAT(read_file(folder_ / "charts" / "sub_batch_times.svg"), Names("<svg", "90 % within"));
  EXPECT_THAT(read_file(folder_ / "charts" / "timeline.svg"), Names("rank 1", "target tokens"));
  const Json trace = Json::parse(read_file(folder_ / "charts" / "timeline.json"));
  size_t computed = 0;
  for (const Json& event : trace["traceEvents"]) computed += event["ph"] == "X" && event["cat"] == "compute" ? 1 : 0;
  EXPECT_GE(computed, 2u);
}

TEST_F(PairsRun, AResumedRunIsTheRun) {
  for (const std::string batcher : {"token_budget", "time_balanced"}) {
    const std::string dir = batcher.substr(0, 4), name = "batcher.name=" + batcher;
    ASSERT_THAT(run(dir, {name, "train.steps=13"}), Succeeds());
    ASSERT_THAT(run(dir, {name, "--resume", path(dir)}), Succeeds());
    EXPECT_TRUE(std::filesystem::exists(folder_ / dir / "sub_batch_times.json") == (dir == "time"));
    if (dir == "time") continue;  // another run would measure other times
    ASSERT_THAT(run("whole", {name}), Succeeds());
    EXPECT_EQ(read_file(folder_ / dir / "checkpoints/step-24/model.safetensors"),
              read_file(folder_ / "whole" / "checkpoints/step-24/model.safetensors"));
  }
}

// A step has 16 sub-batches in turn, and an epoch has about three steps. So nearly every kill interrupts an
// accumulation, and no checkpoint is at the end of an epoch.
TEST_F(PairsRun, KilledInMidAccumulationItEndsInTheSameBits) {
  const Words words{"batch.global=16", "train.steps=41", "train.eval_every=41", "checkpoint.every=5",
                    "train.log_every=1"};
  const auto with = [&](const Words& more) { return joined(more, words); };
  ASSERT_THAT(run("whole", words), Succeeds());
  for (const int64_t records : {2, 9, 23}) {
    const pid_t child = start(command("cut", with({"--resume", "auto"})));
    const auto lines = [&] {
      const std::string text = read_file(folder_ / "cut" / "metrics.jsonl");
      return std::count(text.begin(), text.end(), '\n');
    };
    wait_until(child, [&] { return lines() >= 2 * records; });  // lines of the training and of the rank
    kill(child, SIGKILL);
    wait_for(child);
  }
  ASSERT_THAT(run("cut", with({"--resume", "auto"})), Succeeds());
  EXPECT_TRUE(model("cut", 41) == model("whole", 41));
  EXPECT_FALSE(model("cut", 41).empty());
  EXPECT_EQ(curve("cut"), curve("whole"));
}

class PairsOfProcesses : public PairsRun {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
    const Outcome o = run_lmx({"plugins", "info", "mpi"}, environment());
    if (o.out.find("heartbeat_s") == std::string::npos) GTEST_SKIP() << "this build has no MPI";
  }
};

// Two processes use the same sub-batches as two threads, so that their results are bit-equal, also after a resume.
TEST_F(PairsOfProcesses, EqualThreadsAndGoOn) {
  const Words budget{"batcher.name=token_budget"}, balanced{"batcher.name=time_balanced", "+batcher.cost=flops"};
  for (const auto& words : {budget, balanced}) {
    const std::string m = "m" + words[0].substr(13, 4), v = "v" + m;
    const auto with = [&](const Words& more) { return joined(more, words); };
    ASSERT_THAT(run(m, with({"comm={name: mpi, ranks: 2}"})), Succeeds());
    ASSERT_THAT(run(v, with({"--ranks", "2"})), Succeeds());
    EXPECT_FALSE(model(m, 24).empty());
    EXPECT_TRUE(model(m, 24) == model(v, 24));
    EXPECT_EQ(curve(m), curve(v));
    cut(m, m + "rest", 6);
    const Outcome rest = run(m + "rest", with({"comm={name: mpi, ranks: 2}", "--resume", path(m + "rest")}));
    ASSERT_THAT(rest, Succeeds());
    EXPECT_TRUE(model(m + "rest", 24) == model(m, 24));
  }
}

// Rank 0 measures for all: with separate measurements the ranks would make, and train on, different sub-batches.
// Threads that resume with the run's table use it once for both ranks.
TEST_F(PairsOfProcesses, OneMeasuresForAll) {
  const Words words{"batcher.name=time_balanced", "comm={name: mpi, ranks: 2}"};
  ASSERT_THAT(run("m", words), Succeeds());
  EXPECT_FALSE(read_file(folder_ / "m" / "sub_batch_times.json").empty());
  cut("m", "threads", 6);
  cut("m", "processes", 12);
  Outcome rest = run("threads", {words[0], "--ranks", "2", "--resume", path("threads")});
  ASSERT_THAT(rest, Succeeds());
  EXPECT_TRUE(model("threads", 24) == model("m", 24));
  EXPECT_EQ(curve("threads"), curve("m"));
  rest = run("processes", {words[0], words[1], "--resume", path("processes")});
  ASSERT_THAT(rest, Succeeds());
  EXPECT_TRUE(model("processes", 24) == model("m", 24));
  // A rank uses the times of the file and does not measure: this file lacks a time, and the message reports it.
  std::filesystem::remove_all(path("threads"));
  cut("m", "threads", 6);
  write("threads/sub_batch_times.json", "{\"seconds\": [[1, 2, 3, 0.5]]}");
  rest = run("threads", {words[0], words[1], "--resume", path("threads")});
  EXPECT_THAT(rest, Refuses("order of sub-batches"));
}

// An epoch of the mix reads the main text once, on one rank or on two, and a resume continues within the epoch.
TEST_F(PairsRun, AMixedRunResumesAndNamesItsMistakes) {
  write("crawl.tsv", read_file(folder_ / "pairs.tsv"));
  data_ = data_.substr(0, data_.size() - 1) + ", parts: {crawl: {files: [" + path("crawl.tsv") +
          "], pairs: [1, 300], wrong_targets: 0.2}}, ratio: {crawl: 0.5}}";
  use("");
  const Outcome whole = run("whole");
  ASSERT_THAT(whole, Warns("part main:", "part crawl: 300 sentences"));
  ASSERT_THAT(run("split", {"train.steps=13"}), Succeeds());
  ASSERT_THAT(run("split", {"--resume", path("split")}), Succeeds());
  EXPECT_EQ(read_file(folder_ / "split/checkpoints/step-24/model.safetensors"),
            read_file(folder_ / "whole/checkpoints/step-24/model.safetensors"));
  EXPECT_EQ(run("other", {"--resume", path("split"), "data.ratio.crawl=2"}).code, 2);  // another training text
  const std::string right = data_;
  data_.replace(data_.find("crawl: 0.5"), 10, "crowl: 0.5");
  use("");
  const Outcome o = run("a");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err,
              AllOf(Names("'crawl'?"), testing::ContainsRegex("tiny.yaml:1:[0-9]+: data.ratio.crowl: .*'crowl'")));
  data_ = right;
  use("batcher: {name: tbptt, sequence_length: 5}");
  EXPECT_EQ(run("b").code, 2);
}

TEST_F(PairsRun, HalfPrecisionTellsItsOverflows) {
  const Outcome o = run("a", {"precision=fp16", "+loss_scale.init=1e9", "+stop.when=\"valid.nll_bit <= 99\""});
  ASSERT_THAT(o, Warns("loss scale now", "step", "embedding.weight"));
  EXPECT_THAT(o.out, Names("stopped at valid.nll_bit", "time_to_target_s "));
  EXPECT_THAT(o.err, Names("of training"));
  const auto train = records("a", "train");
  EXPECT_EQ(train.back()["step"], 12);
  EXPECT_GT(train.front()["overflows"], 0);
}

// Recipes named by an axis, BLEU of the final parameters and of a mean, updates to the end, sub-batches divided among
// ranks.
TEST_F(PairsRun, AnExperimentReadsWhatATranslationRunTells) {
  data_ += "}";
  data_.replace(data_.find("}"), 1, ", test_fraction: 0.1");
  for (const std::string kind : {"fp32", "fp16"}) {
    use("");
    write("tiny_" + kind + ".yaml",
          read_file(folder_ / "tiny.yaml") + "precision: " + kind + "\nloss_scale: {init: 1000000000.0}\n");
  }
  std::filesystem::create_directory(folder_ / "experiments");
  write("experiments/pairs.yaml", R"yaml(title: t
scales: {desk: {recipe: "../tiny_${kind}.yaml"}}
axes: {kind: [fp32, fp16]}
variables: {n: 4}
overrides: [train.log_every=1, train.eval_every=6, checkpoint.every=6, checkpoint.keep_last=4]
evaluate: [test]
mean_of_last: 3
measures:
  updates: {key: step}
  epochs: {key: epoch}
  seconds: {key: train_s}
  at_12: {key: nll_nat, where: {step: 3 * n}}
  ppl: {split: test, key: ppl, digits: 9}
  bleu: {split: test, key: bleu, digits: 9}
  mean_ppl: {split: test, key: mean/ppl, digits: 9}
  mean_bleu: {split: test, key: mean/bleu, digits: 9}
  mean: {split: rank, key: mean, deal: 4, take: mean}
  slowest: {split: rank, key: slowest, deal: 4, take: mean}
  quickest: {split: rank, key: quickest, deal: 2, take: min}
  overflows: {split: train, key: overflows, take: sum, only: {kind: fp16}}
  padding: {split: train, key: padding, take: mean}
checks:
  - {claim: updates, class: exact, value: "updates[fp32]", expect: 24}
  - {claim: epochs, class: exact, value: "epochs[fp32]", at_least: 1, at_most: 24}
  - {claim: dealt, class: exact, ascending: ["quickest[fp32] / 1000", "mean[fp32]", "slowest[fp32]"]}
  - {claim: clock, class: exact, value: "seconds[fp32]", at_least: "24 * slowest[fp32] / 2"}
  - {claim: mean, class: exact, value: "abs(mean_ppl[fp32] / ppl[fp32] - 1)", at_least: 1e-6}
  - {claim: overflows, class: exact, value: "overflows[fp16]", at_least: 1}
  - {claim: bleu, class: exact, value: "bleu[fp32] + mean_bleu[fp32]", at_least: 0}
)yaml");
  const Words command{build_path("/bin/lmx"),         "experiment", "run",
                      path("experiments/pairs.yaml"), "--out",      path("out")};
  const Outcome o = run_process(command, environment());
  ASSERT_THAT(o, Succeeds());
  const Json results = Json::parse(read_file(folder_ / "out/results.json"));
  for (const Json& v : results["verdicts"]) EXPECT_EQ(v["verdict"], "reproduced") << v;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/cells/fp32/mean.safetensors"));
  EXPECT_EQ(run_process(command, environment()).out, o.out);  // from the journal
}

TEST_F(PairsRun, MistakesAreOneMessage) {
  EXPECT_THAT(run("a", {"batcher.max_tokens=3"}),
              Refuses("[token_budget] sentence", "batcher.max_tokens, 3", "too_long=skip"));
  use("model: {name: lstm, embedding: 8, cells: 8}");
  EXPECT_THAT(run("a"), Refuses("lstm", "translate: transformer"));
  use("batcher: {name: tbptt, sequence_length: 5}");
  EXPECT_THAT(run("a"), Refuses("same_shape, time_balanced, token_budget"));
  use("data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 0, classes: 6}");
  EXPECT_THAT(run("a"), Refuses("transformer", "synthetic", "one language"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

// The error comes before processes are started, for any number of ranks.
TEST_F(PairsRun, AMissingCorpusSaysWhatCanBeDone) {
  auto nowhere = environment();
  nowhere["LMX_DATA_DIR"] = path("nowhere");
  const auto message = [&](const std::string& recipe, const std::string& advice, Words more = {}) {
    const Outcome o = run_process(
        joined({build_path("/bin/lmx"), "run", source_path("/recipes/") + recipe + ".yaml", "run.dir=" + path("a")},
               more),
        nowhere);
    EXPECT_EQ(o.code, 2) << recipe;
    EXPECT_THAT(o.err, AllOf(Names("missing", advice), Not(HasSubstr("ranks")))) << recipe;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
    return o.err;
  };
  for (const Words& ranks : {Words{}, {"comm=self", "comm.ranks=1"}, {"comm.ranks=2"}})
    EXPECT_THAT(message("ott_wmt", "scale=desk", ranks), Names("wmt16_en_de", "lmx data fetch"));
  EXPECT_THAT(message("puri_amazon_4096", "puri/scale=desk"), Names("amazon_reviews"));
}

}  // namespace
}  // namespace lmx_test
