// Runs whose ranks divide the update (lmx/shard_strategy.h), against runs in which every rank makes it.
#include <nlohmann/json.hpp>

#include "app/run/run.h"
#include "lmx/optim.h"
#include "runfiles/checkpoint.h"
#include "same_tensors.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

// Appended to kWordRecipe. Some parameters have several blocks of kSumBlock elements, the last of which is smaller.
constexpr const char* kTraining = R"(
model: {name: gpt, layers: 2, d: 48, heads: 4, ffn: 150, positions: learned, dropout: 0.1}
loss: {name: full_softmax, bias: false}
optimizer: {name: adamw, lr: 0.01, weight_decay: 0.1}
schedule: {name: constant, warmup: 3}
clip: 0.5
train: {steps: 6, log_every: 2, eval_every: 6}
checkpoint: {every: 3, keep_last: 20}
batch: {global: 8}
)";

std::string rule(const std::string& keys) {
  return "{all: {params: '.*', " + keys + "}}";
}
const std::string kZero = rule("strategy: zero"), kAllreduce = rule("strategy: allreduce");
const std::string kTinyBuckets = rule("strategy: zero, bucket_mb: 0.02, stage: 1");

// As distributed Muon: whole matrices belong to ranks.
constexpr const char* kMuon = R"({hidden: {params: '^layer.*(qkv|out|in)\.', name: muon, lr: 0.02},
  rest: {params: '.*', name: adamw, lr: 0.005}})";

class ShardRuns : public RunFolderTest {
 protected:
  void run(const std::string& dir, int64_t ranks, const std::string& sync, Changes changes = {},
           const std::string& resume = "", int64_t until = 0) {
    changes.emplace_back("sync", sync);
    RunOptions options;
    options.resume = resume;
    options.until_step = until;
    if (!resume.empty()) options.changed_keys = {"sync"};
    run_recipe(recipe_in(dir, ranks, without_batch(str(kWordRecipe, kTraining)), changes), "shards", options);
  }
  // Parameters, and the states of optimizer and averages, of a checkpoint.
  StateDict state_of(const std::string& dir, int64_t step = 6) const {
    TrainState state = load_checkpoint(str(path(dir), "/checkpoints/step-", step), Allocator::cpu());
    EXPECT_TRUE(state.ranks.empty() || state.ranks[0].empty());
    state.model.merge(state.train);
    return state.model;
  }
  void expect_same(const std::string& dir, const std::string& other, int64_t step = 6) const {
    lmx_test::expect_same(state_of(dir, step), state_of(other, step), dir + " and " + other);
    for (const char* value : {"nll_nat", "grad_norm", "skipped"})
      EXPECT_EQ(records(dir, "train").back()[value], records(other, "train").back()[value]) << dir;
  }
  double sum_of(const std::string& dir, const std::string& split, const std::string& value) const {
    double sum = 0;
    for (const auto& record : records(dir, split)) sum += record.value(value, 0.0);
    return sum;
  }
  std::string error(int64_t ranks, const std::string& sync, const Changes& changes = {}) {
    return user_error([&] { run("refused", ranks, sync, changes); });
  }

 private:
  static std::string without_batch(std::string yaml) {
    const std::string batch = "batch: {global: 6}\n";
    return yaml.erase(yaml.find(batch), batch.size());
  }
};

struct Setting {
  const char* name;
  Changes changes;
};
std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << s.name;
}

class Equal : public ShardRuns, public testing::WithParamInterface<Setting> {};

TEST_P(Equal, EveryBitIsThatOfAllReduce) {
  const Changes& changes = GetParam().changes;
  for (const int64_t ranks : {1, 3, 8}) {
    const std::string name = str("_", ranks);
    run("together" + name, ranks, kAllreduce, changes);
    run("stage2" + name, ranks, kZero, changes);
    run("stage1" + name, ranks, kTinyBuckets, changes);
    expect_same("stage2" + name, "together" + name);
    expect_same("stage1" + name, "together" + name);
    if (std::string(GetParam().name) == "fp16") {
      EXPECT_GT(sum_of("stage2" + name, "train", "overflows"), 0);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, Equal,
    testing::Values(Setting{"adamw", {}}, Setting{"sgd", {{"optimizer", "{name: sgd, lr: 0.1, momentum: 0.9}"}}},
                    Setting{"bf16", {{"precision", "bf16"}, {"train.ema", "0.9"}}},
                    Setting{"fp16", {{"precision", "fp16"}, {"loss_scale", "{init: 1e9, window: 2}"}}},
                    Setting{"muon", {{"optimizer", kMuon}, {"clip", "[{params: layer, norm: 0.3}]"}}},
                    Setting{"lamb", {{"optimizer", "{name: lamb, lr: 0.01}"}, {"batch.micro", "1"}}},
                    Setting{"adafactor", {{"optimizer", "{name: adafactor}"}}}),
    testing::PrintToStringParamName());

// Embeddings are exchanged by another rule. A step is left out if its loss is too high, also for divided parameters.
TEST_F(ShardRuns, RulesOfBothKindsMakeOneUpdate) {
  const Changes limits{{"train.max_loss", "3.7"}, {"train.on_divergence", "skip"}, {"init.freeze", "norm.gain"}};
  run("together", 4, kAllreduce, limits);
  run("both", 4,
      "{tables: {params: 'embedding|positions', strategy: allreduce}, a: {params: 'layer.0', strategy: zero, stage: 1},"
      "rest: {params: '.*', strategy: zero}}",
      limits);
  expect_same("both", "together");
  EXPECT_GT(sum_of("both", "train", "skipped"), 0);
  EXPECT_LT(sum_of("both", "train", "skipped"), 6);
}

// Step 3 is saved by so many ranks with one strategy, and others continue from it with the other one.
TEST_F(ShardRuns, ContinueFromCheckpointsOfOtherRanksAndStrategies) {
  const Changes changes{{"precision", "bf16"}, {"train.ema", "0.9"}, {"optimizer", kMuon}, {"clip", "0.5"}};
  struct Part {
    int64_t ranks;
    std::string sync;
  };
  const Part eight{8, kZero}, three{3, kTinyBuckets}, together{3, kAllreduce};
  const std::vector<std::pair<Part, Part>> pairs{
      {eight, eight}, {eight, together}, {together, eight}, {eight, three}, {three, {1, kZero}}};
  int number = 0;
  for (const auto& [before, after] : pairs) {
    const std::string name = str("run", number++), plain = name + "plain";
    run(name, before.ranks, before.sync, changes, "", 3);
    run(plain, before.ranks, kAllreduce, changes, "", 3);
    expect_same(name, plain, 3);
    run(name, after.ranks, after.sync, changes, path(name));
    run(plain, after.ranks, kAllreduce, changes, path(plain));
    expect_same(name, plain);
  }
}

TEST_F(ShardRuns, DoNotContinueWithWhatRanksHaveKept) {
  run("kept", 2, rule("strategy: top_k, keep: 0.1"), {}, "", 3);
  EXPECT_THAT(user_error([&] { run("kept", 2, kZero, {}, path("kept")); }),
              Names("--change sync.all", "all/", "init: {from: RUN}"));
  run("zero", 2, kZero, {}, "", 3);
  EXPECT_THAT(user_error([&] { run("zero", 2, rule("strategy: diloco, every: 3"), {}, path("zero")); }),
              Names("--change sync", "separate values"));
}

// A rank sends the parts of gradients that others own, and its values to all others. Nothing else depends on the size.
TEST_F(ShardRuns, SendAndKeepTheirPartsOnly) {
  constexpr int64_t kRanks = 8, kTwoSteps = 2;
  const Changes wide{{"model.d", "192"}, {"model.ffn", "512"}, {"train.steps", "2"}, {"model.dropout", "0"}};
  run("r", kRanks, kZero, wide);
  run("all", kRanks, kAllreduce, wide);
  double scattered = 0, gathered = 0;
  const auto ranks = records("r", "rank"), whole = records("all", "rank");
  ASSERT_EQ(ranks.size(), static_cast<size_t>(kRanks));
  int64_t n = 0, parameters = 0;
  for (const auto& [name, t] : load_checkpoint(path("r") + "/checkpoints/step-2", Allocator::cpu()).model)
    n += t.numel(), ++parameters;
  for (size_t r = 0; r < ranks.size(); ++r) {
    scattered += ranks[r]["comm/all/all_to_all/sent_bytes"].get<double>();
    gathered += ranks[r]["comm/all/all_gather/sent_bytes"].get<double>();
    const auto peak = [&](const auto& records, const std::string& of) {
      return records[r]["memory/" + of + "_peak_bytes"].template get<double>();
    };
    const double state = peak(ranks, "optimizer"), all = peak(whole, "optimizer");
    EXPECT_EQ(all, 8 * static_cast<double>(n));
    EXPECT_LE(state, all / kRanks * 1.01 + 2 * 4 * kSumBlock) << "rank " << r;
    EXPECT_LT(peak(ranks, "total"), peak(whole, "total"));
  }
  EXPECT_EQ(scattered, 4.0 * static_cast<double>(n) * (kRanks - 1) * kTwoSteps);
  EXPECT_EQ(gathered, scattered);
  EXPECT_GT(n, 8 * 8 * kSumBlock);
}

// Gradients in 8 bits and in 16, whose sums and values are exact; one rank encodes nothing.
TEST_F(ShardRuns, GradientsMayBeEncoded) {
  const std::string eight = rule("strategy: zero, codec: {kind: quantised, bits: 8, block: 64, feedback: 1}"),
                    half = rule("strategy: zero, codec: {kind: bf16}");
  run("exact", 3, kZero);
  run("eight", 3, eight);
  run("half", 3, half);
  const double loss = records("exact", "train").back()["nll_nat"];
  for (const char* name : {"eight", "half"}) {
    const double coded = records(name, "train").back()["nll_nat"];
    EXPECT_NE(coded, loss) << name;
    EXPECT_NEAR(coded, loss, 0.01 * loss) << name;
  }
  const auto sent = [&](const char* dir, const char* collective) {
    double sum = 0;
    for (const auto& rank : records(dir, "rank"))
      sum += rank[str("comm/all/", collective, "/sent_bytes")].get<double>();
    return sum;
  };
  EXPECT_EQ(sent("half", "all_to_all"), sent("exact", "all_to_all") / 2);
  EXPECT_EQ(sent("half", "all_gather"), sent("exact", "all_gather"));
  run("one", 1, eight);
  run("plain", 1, kZero);
  EXPECT_EQ(records("one", "train").back()["nll_nat"], records("plain", "train").back()["nll_nat"]);
}

// The residuals belong to ranks, and to whole parameters, so that any number of ranks can continue with them.
TEST_F(ShardRuns, ResidualsOfACodecContinue) {
  const std::string coded = rule("strategy: zero, codec: {kind: quantised, bits: 2, block: 64, feedback: 1}");
  const auto states_of = [&](const std::string& dir) {
    return load_checkpoint(str(path(dir), "/checkpoints/step-6"), Allocator::cpu());
  };
  run("whole", 3, coded);
  run("part", 3, coded, {}, "", 3);
  run("part", 3, coded, {}, path("part"));
  const TrainState whole = states_of("whole"), part = states_of("part");
  ASSERT_EQ(whole.ranks.size(), 3u);
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(whole.ranks[r].contains("all/embedding.weight.push"));
    lmx_test::expect_same(whole.ranks[r], part.ranks[r]);
  }
  lmx_test::expect_same(whole.model, part.model);
  run("other", 3, coded, {}, "", 3);
  run("other", 5, coded, {}, path("other"));
  EXPECT_NEAR(sum_of("other", "train", "nll_nat"), sum_of("whole", "train", "nll_nat"), 0.5);
  run("skipped", 2, coded, {{"train.max_loss", "0.1"}, {"train.on_divergence", "skip"}, {"checkpoint.every", "1"}}, "",
      1);
  for (const StateDict& rank : load_checkpoint(path("skipped/checkpoints/step-1"), Allocator::cpu()).ranks)
    EXPECT_TRUE(rank.empty());
}

TEST_F(ShardRuns, RefusesWhatCannotBeRight) {
  const std::string lstm = "{name: lstm, embedding: 8, cells: 10}";
  EXPECT_THAT(error(2, kZero, {{"model", lstm}}),
              Names("change:1:7: sync.all", "embedding", "rows of the table", "strategy zero", "sync=unique"));
  EXPECT_THAT(error(2, "{a: {params: layer, strategy: zero}, b: {params: '.*', strategy: param_server}}"),
              Names("change:1:", "sync.b", "param_server", "asynchronous"));
  EXPECT_THAT(error(2, kZero, {{"optimizer", "{name: schedule_free}"}}),
              Names("change:1:8: optimizer.name", "schedule_free", "no rank has the whole state"));
  EXPECT_THAT(error(2, rule("strategy: zero, stage: 3")), Names("change:1:", "stage", "1", "2"));
  EXPECT_THAT(error(2, rule("strategy: zero, bukket_mb: 3")), Names("bukket_mb", "bucket_mb"));
  EXPECT_THAT(error(2, rule("strategy: zero, codec: {kind: bf16, scale: 8}")),
              Names("sync.all.codec.scale", "kind is bf16"));
  EXPECT_THAT(error(2, rule("strategy: zero, codec: {kind: bf61}")), Names("codec.kind", "bf16"));
  EXPECT_FALSE(std::filesystem::exists(path("refused")));
}

}  // namespace
}  // namespace lmx::app
