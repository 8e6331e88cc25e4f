// Runs that are killed or signalled, and go on bit by bit.
#include <gmock/gmock.h>

#include <random>

#include "run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

using Resume = RunTest;

TEST_F(Resume, KilledAtRandomMomentsEndsInTheSameBits) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run("whole").code, 0);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string expected = model("whole");
  ASSERT_FALSE(expected.empty());

  std::mt19937 random(7);
  std::uniform_real_distribution<double> moment(0, 1.05 * seconds);
  int kills = 0, finished = 0;
  for (int attempt = 0; kills < 20 && attempt < 60; ++attempt) {
    const std::string dir = "killed" + std::to_string(finished);
    const pid_t child = start(command(dir, {"--resume", "auto"}));
    std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
    kill(child, SIGKILL);
    const int code = wait_for(child);
    if (code == 128 + SIGKILL) {
      ++kills;
      continue;
    }
    ASSERT_EQ(code, 0);
    EXPECT_EQ(model(dir), expected);
    EXPECT_EQ(metrics(dir), metrics("whole"));
    ++finished;
  }
  EXPECT_GE(kills, 20);
  const std::string last = "killed" + std::to_string(finished);
  const Outcome o = run(last, {"--resume", "auto"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(model(last), expected);
  EXPECT_EQ(metrics(last), metrics("whole"));
  for (const auto& entry : fs::directory_iterator(folder_ / last / "checkpoints"))
    EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
}

TEST_F(Resume, SignalsFinishTheStepAndSaveIt) {
  const std::vector<std::string> longer{"train.steps=1500", "checkpoint.every=1500", "train.eval_every=1500",
                                        "train.log_every=10"};
  ASSERT_EQ(run("whole", longer).code, 0);
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}}) {
    const std::string dir = "signal" + std::to_string(signal);
    const pid_t child = start(command(dir, longer));
    while (read_file(folder_ / dir / "metrics.jsonl").empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    kill(child, signal);
    ASSERT_EQ(wait_for(child), code);
    EXPECT_THAT(read_file(folder_ / dir / "status.json"), HasSubstr("\"interrupted\""));
    ASSERT_EQ(run(dir, {"train.steps=1500", "checkpoint.every=1500", "train.eval_every=1500", "train.log_every=10",
                        "--resume", path(dir)})
                  .code,
              0);
    EXPECT_EQ(model(dir, 1500), model("whole", 1500));
    EXPECT_EQ(metrics(dir), metrics("whole"));
  }
}

TEST_F(Resume, FinishedRunSaysItsResultAgain) {
  const Outcome first = run("done"), again = run("done", {"--resume", path("done")});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.out, first.out);
}

TEST_F(Resume, AnotherModelShape) {
  ASSERT_EQ(run("a", {"train.steps=10"}).code, 0);
  const Outcome o = run("a", {"train.steps=10", "--resume", path("a"), "model.cells=24"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("another recipe"), HasSubstr("parameter lstm.0.weight_ih is (64, 12) there, (96, 12) here"),
                           HasSubstr("model.cells: 16 there, 24 here")));
}

TEST_F(Resume, AnotherRecipeOfTheSameShape) {
  ASSERT_EQ(run("a", {"train.steps=10"}).code, 0);
  const Outcome o =
      run("a", {"train.steps=10", "--resume", path("a"), "seed=2", "optimizer.lr=0.5", "model.dropout=0"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("seed: 1 there, 2 here"), HasSubstr("optimizer.lr: 0.01 there, 0.5 here"),
                           HasSubstr("model.dropout: 0.1 there")));
}

TEST_F(Resume, LongerIsAllowed) {
  ASSERT_EQ(run("a", {"train.steps=10"}).code, 0);
  ASSERT_EQ(run("a", {"train.steps=20", "--resume", path("a")}).code, 0);
  ASSERT_EQ(run("b", {"train.steps=20"}).code, 0);
  EXPECT_FALSE(model("b", 20).empty());
}

TEST_F(Resume, UnreadableRunDirectories) {
  Outcome o = run("a", {"--resume", path("nowhere")});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("there is no run directory " + path("nowhere")));
  o = run("a", {"--resume", path("tiny.yaml")});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("is no directory"));
  fs::create_directory(path("other"));
  write("other/notes.txt", "x");
  o = run("a", {"--resume", path("other")});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("holds no run: it has no config.yaml"));
  EXPECT_FALSE(fs::exists(path("other/log.txt")));
}

TEST_F(Resume, DamagedCheckpoints) {
  ASSERT_EQ(run("a", {"train.steps=10"}).code, 0);
  const std::string file = path("a/checkpoints/step-10/train_state.safetensors"), good = read_file(file);
  const auto refused = [&](const std::string& message) {
    const Outcome o = run("a", {"train.steps=20", "--resume", path("a")});
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, AllOf(HasSubstr("step-10/train_state.safetensors"), HasSubstr(message)));
  };
  write("a/checkpoints/step-10/train_state.safetensors", good.substr(0, good.size() - 9));
  refused("is damaged: it has");
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 4);
  write("a/checkpoints/step-10/train_state.safetensors", flipped);
  refused("SHA-256");
  fs::remove(file);
  refused("is missing");
}

TEST_F(Resume, TwoProcessesInOneRun) {
  const pid_t child = start(command("a", {"train.steps=1000000"}));
  while (read_file(folder_ / "a" / "metrics.jsonl").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const Outcome o = run("a", {"train.steps=1000000", "--resume", path("a")});
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("another process is training in"));
}

TEST_F(Resume, AutoStartsWhereThereIsNothing) {
  const Outcome o = run("fresh", {"train.steps=10", "--resume", "auto"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(model("fresh", 10).empty());
}

}  // namespace
}  // namespace lmx_test
