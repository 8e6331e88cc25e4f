// Batchers whose steps have sequences shorter than sequence_length(): gradients are the mean over the tokens of the
// step, records count these tokens, and contradictory sizes are rejected.
#include <gmock/gmock.h>

#include <cmath>

#include "app/inference/evaluate_run.h"
#include "app/run/dry_run.h"
#include "app/run/run.h"
#include "names.h"
#include "paths.h"
#include "runfiles/checkpoint.h"
#include "train/run_folder.h"

namespace lmx::train {
namespace {

using lmx_test::Names;
using testing::HasSubstr;

constexpr const char* kLengthsRecipe = R"(
data: {name: synthetic, vocab_size: 40, train_tokens: 3000, valid_tokens: 600, test_tokens: 0, branching: 6, classes: 4}
batch: {global: 8}
model: {name: lstm, embedding: 8, cells: 10, projection: 6}
optimizer: {name: sgd, lr: 0.5}
train: {steps: 6, log_every: 1, eval_every: 6, eval_batch: 4, eval_carry: false}
run: {tensorboard: false}
threads: 1
)";

class Lengths : public RunFolderTest {
 protected:
  Lengths() { Registry::instance().add_directory(lmx_test::build_path("/tests/train_plugins")); }
  Node recipe(const std::string& dir, const std::string& batcher, const std::string& more = "") const {
    Node tree = parse_yaml(str(kLengthsRecipe, "batcher: ", batcher, "\n", more), "lengths.yaml");
    if (!tree.find("loss")) tree.set("loss", parse_yaml("{name: full_softmax}", "change"));
    tree.find("run")->set("dir", Node::string(path(dir)));
    return tree;
  }
  RunResult run(const std::string& dir, const std::string& batcher, const std::string& more = "") const {
    return run_recipe(recipe(dir, batcher, more), "lengths", {});
  }
  std::string model(const std::string& dir) const {
    return read_all(path(dir) + "/checkpoints/step-6/model.safetensors");
  }
  std::string refused(const std::string& batcher, const std::string& more = "") const {
    return message<UserError>([&] { run("refused", batcher, more); });
  }
};

// Loss and gradient do not depend on the longest window of the run.
TEST_F(Lengths, GradientsAreTheMeanOverTheTokensOfTheStep) {
  for (const char* normalize : {"token", "sequence"}) {
    const std::string loss = str("loss: {name: full_softmax, normalize: ", normalize, "}");
    run("exact", "{name: growing, shortest: 8, longest: 8, declares: nothing}", loss);
    run("long", "{name: growing, shortest: 8, longest: 64, every: 1000}", loss);
    const auto exact = records("exact", "train"), longer = records("long", "train");
    ASSERT_EQ(exact.size(), 6u);
    EXPECT_GT(exact[0]["grad_norm"], 0.01) << normalize;
    EXPECT_EQ(exact[0]["grad_norm"], longer[0]["grad_norm"]) << normalize;  // the windows of step 0 are the same
    for (const char* dir : {"exact", "long"}) std::filesystem::remove_all(path(dir));
  }
}

TEST_F(Lengths, AGrowingWindowCounts) {
  run("grown", "{name: growing, shortest: 3, longest: 6, every: 2}");
  const auto steps = records("grown", "train");
  ASSERT_EQ(steps.size(), 6u);
  const std::vector<int64_t> tokens{24, 48, 80, 112, 152, 192};  // 8 windows of 3, 3, 4, 4, 5 and 5
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i]["tokens"], tokens[i]) << i;
  // Several ranks and micro-batches divide by the same number.
  run("micro", "{name: growing, shortest: 3, longest: 6, every: 2}", "comm: {name: virtual, ranks: 2}");
  const auto ranks = records("micro", "train");
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(ranks[i]["grad_norm"].get<double>(), steps[i]["grad_norm"].get<double>(), 1e-5) << i;
}

TEST_F(Lengths, ContradictionsAreRefused) {
  EXPECT_THAT(refused("{name: growing, shortest: 8, longest: 64, every: 1000, declares: nothing}"),
              Names("[batcher] growing", "step 1", "64 targets", "512", "step_size()"));
  std::filesystem::remove_all(path("refused"));
  EXPECT_THAT(refused("{name: growing, shortest: 8, longest: 8, claims: 5}"),
              Names("[batcher] growing", "(8, 8)", "1 to 5", "sequence_length()"));
}

// Evaluation and plans ask the batcher for its length; its keys may have any name.
TEST_F(Lengths, EvaluationAndPlansAskTheBatcher) {
  const RunResult trained = run("asked", "{name: growing, shortest: 20, longest: 20}");
  const EvalResult evaluated = evaluate_run(path("asked"), {});
  EXPECT_DOUBLE_EQ(evaluated.ppl, trained.valid_ppl);
  run("other", "{name: growing, shortest: 20, longest: 35, every: 1000}");
  EXPECT_NE(evaluate_run(path("other"), {}).ppl, trained.valid_ppl) << "windows of 20 and of 35 give the same result";
  DatasetChecks checks;
  EXPECT_THAT(dry_run(recipe("plan", "{name: growing, shortest: 20, longest: 20}"), "lengths", checks).text,
              HasSubstr("batch 8 sequences = 160 tokens"));
}

TEST_F(Lengths, AResumeCountsOnFromItsCheckpoint) {
  const std::string batcher = "{name: growing, shortest: 3, longest: 6, every: 2}";
  run("whole", batcher);
  run("parts", batcher, "checkpoint: {every: 2}");
  for (const CheckpointInfo& c : list_checkpoints(path("parts")))
    if (c.step > 4) std::filesystem::remove_all(c.folder);
  run_recipe(recipe("parts", batcher, "checkpoint: {every: 2}"), "lengths", {path("parts"), {}, ""});
  EXPECT_EQ(records("parts", "train").back()["tokens"], 192);
  EXPECT_EQ(checkpoint_numbers(path("parts") + "/checkpoints/step-6").at("counted.tokens"), "192");
  EXPECT_EQ(model("parts"), model("whole"));
}

}  // namespace
}  // namespace lmx::train
