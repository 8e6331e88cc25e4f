// train.preflight: the largest batch of the epoch is computed before training and changes nothing.
#include "memory/memory_fixture.h"

namespace lmx_test {
namespace {

class Preflight : public MemoryTest {
 protected:
  // Trains with and without a preflight.
  void expect_no_effect(const Words& words, int64_t step) const {
    expect_run("with", joined(words, {"train.preflight=true"}));
    expect_run("without", joined(words, {"train.preflight=false"}));
    EXPECT_THAT(log("with"), HasSubstr("preflight: step "));
    EXPECT_THAT(log("without"), Not(HasSubstr("preflight: step ")));
    expect_same("with", "without", step);
    for (const char* dir : {"with", "without"}) std::filesystem::remove_all(path(dir));
  }
};

TEST_F(Preflight, ChangesNothing) {
  expect_no_effect({"train.steps=30"}, 30);
  expect_no_effect({"train.steps=30", "precision=fp16", "loss_scale.init=1e9"}, 30);
  expect_no_effect({"train.steps=20", "--ranks", "3"}, 20);
  expect_no_effect({"train.steps=20", "--ranks", "3", "~loss.samples", "loss.name=two_stage_softmax",
                    "++sync={all: {params: '.*', strategy: sampled_rows, codec: {kind: one_bit}}}"},
                   20);
}

TEST_F(Preflight, ChangesNothingInWorkers) {
  expect_no_effect({"train.steps=20", "train.ema=0", "--ranks", "3",
                    "++sync={all: {params: '.*', strategy: param_server, codec: {kind: one_bit}}}"},
                   20);
}

TEST_F(Preflight, ChangesNothingInAResumedRun) {
  expect_run("whole", {"train.steps=40"});
  expect_run("cut", {"train.steps=40", "--until", "20"});
  expect_run("cut", {"train.steps=40", "train.preflight=true", "--resume", path("cut")});
  EXPECT_THAT(log("cut"), HasSubstr("preflight: step "));
  EXPECT_EQ(state("cut", 40), state("whole", 40));
  EXPECT_EQ(metrics("cut"), metrics("whole"));
}

TEST_F(Preflight, ChangesNothingOnADevice) {
  if (!has_device()) GTEST_SKIP() << "this build has no emulated device";
  for (const std::string preflight : {"true", "false"}) {
    ASSERT_THAT(run_on_device(preflight, {"train.steps=20", "train.preflight=" + preflight}, int64_t{1} << 33),
                Succeeds());
  }
  expect_same("true", "false", 20);
}

// The batch with the most tokens of the epoch, which is not that of the first step.
TEST_F(Preflight, TakesTheLargestBatchOfTheEpoch) {
  use_pairs();
  expect_no_effect({}, 20);
  expect_no_effect({"--ranks", "2"}, 20);
  const Outcome o = expect_run("epoch", {"train.steps=0", "train.epochs=1", "train.preflight=true"});
  EXPECT_THAT(o.err,
              testing::ContainsRegex("preflight: step [0-9]+ \\(1 sentence with 61 source and 39 target tokens"));
}

TEST_F(Preflight, IsOnWhereItCanHelp) {
  const auto line = [&](const Words& words) {
    const Outcome o = run("a", joined({"--dry-run"}, words));
    const size_t at = o.out.find("preflight: ");
    return at == std::string::npos ? o.out : o.out.substr(at, o.out.find('\n', at) - at);
  };
  EXPECT_THAT(line({}), Names("no, because the estimate, ", "at most 25 % of the memory"));
  EXPECT_THAT(line({"memory.budget=0.0002"}), Names("yes, because the estimate, ", "above 25 %"));
  EXPECT_THAT(line({"memory.budget=0.0002", "train.steps=99"}), Names("no, ", "fewer than 100 steps"));
  EXPECT_THAT(line({"train.preflight=true"}), Names("yes, because train.preflight is true"));
  EXPECT_THAT(line({"train.preflight=false", "memory.budget=0.0002"}), Names("no, because train.preflight is false"));
  // The run decides as the dry run does; a resumed run does not.
  const Outcome dry = run("dry", {"memory.budget=0.00001", "--dry-run"});
  EXPECT_EQ(dry.code, 2);
  EXPECT_THAT(dry.out, HasSubstr("more than memory.budget, 10 kB\n"));
  expect_run("small", {"memory.budget=0.0004", "--until", "10"});
  EXPECT_THAT(log("small"), HasSubstr("preflight: step 1 (4 sequences of 6 words a pass) took "));
  expect_run("usual", {"--until", "10"});
  EXPECT_THAT(log("usual"), Not(HasSubstr("preflight: step ")));
  std::filesystem::remove(folder_ / "small/log.txt");
  expect_run("small", {"memory.budget=0.0004", "--until", "20", "--resume", path("small")});
  EXPECT_THAT(log("small"), Not(HasSubstr("preflight: step ")));
}

// One process has a host for itself, and another one shares its host, so only the second one wants a preflight.
TEST_F(Preflight, RanksOfDifferentHostsAgree) {
  if (run("probe", {"comm={name: gloo, ranks: 1}", "train.steps=1"}).code != 0) GTEST_SKIP() << "no comm=gloo";
  for (const pid_t rank : start_hosts("a", {"memory.budget=0.0007"})) EXPECT_EQ(wait_for(rank), 0);
  EXPECT_THAT(log("a"), HasSubstr("preflight: step 1 "));
}

TEST_F(Preflight, TooLittleMemoryIsOneMessage) {
  if (!has_device()) GTEST_SKIP() << "this build has no emulated device";
  const Words large{"train.preflight=true", "batch.micro=0", "batch.global=16", "batcher.sequence_length=64",
                    "model.cells=64"};
  const Outcome o = run_on_device("a", large, 4'000'000);
  EXPECT_THAT(o, Fails("error: [memory] preflight: out of memory in the largest batch of the epoch, that of step 1 "
                       "(16 sequences of 64 words a pass)",
                       "cannot allocate ", "parameters ", "activations ", "batch.micro", "batch.fit=memory"));
  const auto status = nlohmann::json::parse(read_file(folder_ / "a/status.json"));
  EXPECT_EQ(status["state"], "failed");
  EXPECT_EQ(status["cause"], "out_of_memory");
  EXPECT_EQ(read_file(folder_ / "a/metrics.jsonl"), "");
}

// The preflight takes seconds here, a step as long; the kill comes while it runs.
TEST_F(Preflight, AKilledOneLeavesARunThatStartsAgain) {
  const Words slow{"train.steps=3",   "train.log_every=1",   "train.eval_every=3",        "checkpoint.every=1",
                   "model.cells=900", "model.projection=64", "batcher.sequence_length=60"};
  const Words checked = joined(slow, {"train.preflight=true"});
  expect_run("whole", joined(slow, {"train.preflight=false"}));
  const pid_t child = start(command("killed", joined(checked, {"--resume", "auto"})));
  ASSERT_TRUE(wait_until(
      child, [&] { return read_file(folder_ / "killed/status.json").find("running") != std::string::npos; }));
  kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), 128 + SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "killed/checkpoints/step-1"));
  expect_run("killed", joined(checked, {"--resume", "auto"}));
  EXPECT_THAT(log("killed"), HasSubstr("preflight: step "));
  EXPECT_EQ(state("killed", 3), state("whole", 3));
  EXPECT_EQ(metrics("killed"), metrics("whole"));
}

}  // namespace
}  // namespace lmx_test
