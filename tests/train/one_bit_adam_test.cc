// Runs with 1-bit Adam, whose strategy has the moments: against runs with the optimizer adamw, and resumed.
// tests/sync/published_methods_test.cc compares its steps with a plain loop.
#include <nlohmann/json.hpp>

#include "app/run/run.h"
#include "runfiles/checkpoint.h"
#include "same_tensors.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

constexpr const char* kGptTraining = R"(
model: {name: gpt, layers: 1, d: 24, heads: 2, ffn: 40, positions: learned}
loss: {name: full_softmax, bias: false}
schedule: {name: constant, warmup: 3}
train: {steps: 6, log_every: 2, eval_every: 0}
checkpoint: {every: 3, keep_last: 20}
)";

class OneBitAdamRuns : public RunFolderTest {
 protected:
  void run(const std::string& dir, int64_t ranks, const std::string& keys, Changes changes = {},
           const std::string& resume = "", int64_t until = 0) {
    changes.emplace(changes.begin(), "optimizer", "{name: sgd, lr: 0.01, weight_decay: 0.1}");
    changes.emplace_back("sync", "{all: {params: '.*', " + keys + "}}");
    run_recipe(recipe_in(dir, ranks, str(kWordRecipe, kGptTraining), changes), "one_bit_adam",
               {.resume = resume, .until_step = until});
  }
  TrainState state_of(const std::string& dir, int64_t step) const {
    return load_checkpoint(str(path(dir), "/checkpoints/step-", step), Allocator::cpu());
  }
  double loss_of(const std::string& dir) const { return records(dir, "train").back()["nll_nat"]; }
  std::string error(const std::string& keys, const Changes& changes) {
    return user_error([&] { run("refused", 2, keys, changes); });
  }
};

TEST_F(OneBitAdamRuns, TheWarmUpIsAdamW) {
  run("adamw", 3, "strategy: allreduce", {{"optimizer", "{name: adamw, lr: 0.01, weight_decay: 0.1}"}});
  run("warm_up", 3, "strategy: one_bit_adam, freeze: 100");
  const StateDict want = state_of("adamw", 6).model, got = state_of("warm_up", 6).model;
  for (const auto& [name, t] : want)
    for (int64_t i = 0; i < t.numel(); ++i)
      ASSERT_NEAR(got.at(name).data<float>()[i], t.data<float>()[i], 1e-5) << name << '[' << i << ']';
}

TEST_F(OneBitAdamRuns, MomentaOfOneBitTrainAsWell) {
  const Changes longer{{"train.steps", "60"}, {"batch.global", "12"}, {"train.log_every", "20"}};
  Changes adamw = longer;
  adamw.emplace_back("optimizer", "{name: adamw, lr: 0.01, weight_decay: 0.1}");
  run("adamw", 4, "strategy: allreduce", adamw);
  run("one_bit", 4, "strategy: one_bit_adam, freeze: 20", longer);
  EXPECT_LT(loss_of("one_bit"), 1.05 * loss_of("adamw"));
  EXPECT_LT(loss_of("adamw"), 0.9 * records("adamw", "train").front()["nll_nat"].get<double>());
  const auto sent = [&](const char* dir) { return records(dir, "train").back()["comm_sent_bytes"].get<double>(); };
  EXPECT_LT(sent("one_bit"), sent("adamw") / 12);  // small parameters have 4 bytes for each part
}

// Saved in the warm-up and after it: with the same ranks a run continues in the same bits, also their residuals.
TEST_F(OneBitAdamRuns, ContinueFromCheckpoints) {
  for (const char* freeze : {"1", "5"}) {
    // A variance of few gradients is near 0 for some elements, so eps limits their directions.
    const std::string keys = str("strategy: one_bit_adam, eps: 0.1, freeze: ", freeze), whole = str("whole", freeze),
                      part = str("part", freeze);
    run(whole, 3, keys);
    run(part, 3, keys, {}, "", 3);
    run(part, 3, keys, {}, path(part));
    const TrainState want = state_of(whole, 6), got = state_of(part, 6);
    lmx_test::expect_same(want.model, got.model);
    ASSERT_EQ(want.ranks.size(), 3u);
    for (size_t r = 0; r < 3; ++r) lmx_test::expect_same(want.ranks[r], got.ranks[r]);
    EXPECT_EQ(loss_of(part), loss_of(whole));
    lmx_test::expect_same(want.train, got.train);
    EXPECT_TRUE(want.train.contains("sync/all/@updates"));
    for (const int64_t ranks : {1, 2, 4}) {
      const std::string other = str(part, "_", ranks);
      run(other, 3, keys, {}, "", 3);
      run(other, ranks, keys, {}, path(other));
      EXPECT_NEAR(loss_of(other), loss_of(whole), 0.05 * loss_of(whole));
    }
  }
}

TEST_F(OneBitAdamRuns, RefuseWhatCannotBeRight) {
  const std::string keys = "strategy: one_bit_adam";
  EXPECT_THAT(error(keys, {{"optimizer", "{name: adamw}"}}), Names("sync.all", "moments", "optimizer=sgd"));
  EXPECT_THAT(error(keys, {{"optimizer", "{name: sgd, lr: 0.1, momentum: 0.9}"}}), Names("sync.all", "moments"));
  EXPECT_THAT(error(keys, {{"clip", "1"}}), Names("sync.all", "direction", "clip: 0"));
  EXPECT_THAT(error(keys, {{"precision", "fp16"}}), Names("sync.all", "loss scale"));
  EXPECT_THAT(error(keys, {{"model", "{name: lstm, embedding: 8, cells: 10}"}}),
              Names("change:1:7: sync.all", "embedding", "moments of whole gradients", "sync=unique"));
  EXPECT_THAT(error(keys + ", betas: [0.9, 1]", {}), Names("sync.all.betas", "[0, 1)"));
  EXPECT_THAT(error(keys + ", codec: {kind: fp16}", {}), Names("sync.all.codec", "error feedback", "kind: sign"));
  EXPECT_THAT(error(keys + ", codec: {kind: sign, feedback: 0}", {}), Names("sync.all.codec", "error feedback"));
  EXPECT_THAT(error(keys + ", freeze: 0", {}), Names("freeze"));
  EXPECT_FALSE(std::filesystem::exists(path("refused")));
}

}  // namespace
}  // namespace lmx::app
