// Runs whose ranks divide the update (lmx/shard_strategy.h), against runs in which every rank makes it.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "app/run/run.h"
#include "lmx/shard_strategy.h"
#include "names.h"
#include "runfiles/checkpoint.h"
#include "train/loop/trainer.h"
#include "train/run_folder.h"

namespace lmx::train {
namespace {

using lmx_test::Names;

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

class ShardRuns : public RunFolderTest {
 protected:
  void run(const std::string& dir, int64_t ranks, const std::string& sync, Changes changes = {},
           const std::string& resume = "", int64_t until = 0) {
    changes.emplace_back("sync", sync);
    RunOptions options;
    options.resume = resume;
    options.until_step = until;
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
    const StateDict a = state_of(dir, step), b = state_of(other, step);
    ASSERT_EQ(a.size(), b.size()) << dir << " and " << other;
    for (const auto& [name, t] : a) {
      ASSERT_TRUE(b.contains(name)) << name;
      ASSERT_EQ(t.shape(), b.at(name).shape()) << name;
      ASSERT_EQ(std::memcmp(t.raw(), b.at(name).raw(), static_cast<size_t>(t.bytes())), 0) << dir << ": " << name;
    }
    for (const char* value : {"nll_nat", "grad_norm", "skipped"})
      EXPECT_EQ(records(dir, "train").back()[value], records(other, "train").back()[value]) << dir;
  }
  std::string error(int64_t ranks, const std::string& sync, const Changes& changes = {}) {
    return message<UserError>([&] { run("refused", ranks, sync, changes); });
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
  }
}
constexpr const char* kMuon = R"({hidden: {params: '^layer.*(qkv|out|in)\.', name: muon, lr: 0.02},
  rest: {params: '.*', name: adamw, lr: 0.005}})";
INSTANTIATE_TEST_SUITE_P(
    All, Equal,
    testing::Values(Setting{"adamw", {}}, Setting{"sgd", {{"optimizer", "{name: sgd, lr: 0.1, momentum: 0.9}"}}},
                    Setting{"bf16", {{"precision", "bf16"}, {"train.ema", "0.9"}}},
                    Setting{"fp16", {{"precision", "fp16"}, {"loss_scale", "{init: 1e9, window: 2}"}}},
                    Setting{"muon", {{"optimizer", kMuon}, {"clip", "[{params: layer, norm: 0.3}]"}}},
                    Setting{"lamb", {{"optimizer", "{name: lamb, lr: 0.01}"}, {"batch.micro", "1"}}},
                    Setting{"adafactor", {{"optimizer", "{name: adafactor}"}}}),
    testing::PrintToStringParamName());

// Embeddings are exchanged by another rule. The step is skipped if one rule's gradients diverge.
TEST_F(ShardRuns, RulesOfBothKindsMakeOneUpdate) {
  const Changes limits{
      {"train.max_loss", "3.7"}, {"train.on_divergence", "skip"}, {"init.freeze", "'final|norm.gain'"}};
  run("together", 4, kAllreduce, limits);
  run("both", 4,
      "{tables: {params: 'embedding|positions', strategy: allreduce}, a: {params: 'layer.0', strategy: zero, stage: 1},"
      "rest: {params: '.*', strategy: zero}}",
      limits);
  expect_same("both", "together");
}

}  // namespace
}  // namespace lmx::train
