// `lmx run --restarts N`: a run that loses its process or a rank ends with the bits of a run that lost nothing.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "comm/job.h"
#include "names.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

constexpr int kSteps = 400;
constexpr int kGlooSteps = 120;  // each step of several processes takes longer

class RestartsTest : public RunTest {
 protected:
  static Words joined(Words a, const Words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  // A run that saves every 10 steps, with any number of ranks.
  static Words longer(const Words& more, int steps = kSteps) {
    const std::string n = std::to_string(steps);
    return joined({"train.steps=" + n, "train.eval_every=" + n, "train.log_every=10"}, more);
  }
  // The command of a job with the environment of this fixture.
  Words job(const std::string& dir, const Words& more) const {
    Words words{"env"};
    for (const auto& [name, value] : environment()) words.push_back(std::string(name).append("=").append(value));
    return joined(words, command(dir, more));
  }
  static std::vector<pid_t> children_of(pid_t parent) {
    const std::string name = std::to_string(parent);
    std::ifstream list("/proc/" + name + "/task/" + name + "/children");
    std::vector<pid_t> all;
    for (pid_t child = 0; list >> child;) all.push_back(child);
    return all;
  }
  // Waits until the run has the checkpoint of `step`. Returns the lmx that trains.
  pid_t training_at(const Job& job, const std::string& dir, int step = 20) const {
    const fs::path saved = folder_ / dir / "checkpoints" / ("step-" + std::to_string(step));
    EXPECT_TRUE(wait_until(job.pid(), [&] { return fs::exists(saved); })) << job.err();
    const std::vector<pid_t> children = children_of(job.pid());
    EXPECT_EQ(children.size(), 1u) << job.err();
    return children.empty() ? -1 : children.front();
  }
  // The ranks' processes below an lmx that has started them.
  static pid_t rank_of(pid_t starter, int rank) {
    for (const pid_t child : children_of(starter)) {
      const std::string variables = '\0' + read_file("/proc/" + std::to_string(child) + "/environ");
      if (variables.find('\0' + ("LMX_RANK=" + std::to_string(rank)) + '\0') != std::string::npos) return child;
    }
    return -1;
  }
  json json_of(const std::string& dir, const char* file) const { return json::parse(read_file(folder_ / dir / file)); }
  std::string log(const std::string& dir) const { return read_file(folder_ / dir / "log.txt"); }
  // Processes whose command line names the folder of the run.
  int processes_of(const std::string& dir) const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator("/proc"))
      count += read_file(entry.path() / "cmdline").find("run.dir=" + path(dir)) != std::string::npos;
    return count;
  }
  static std::string crashing() { return LMX_BINARY_DIR "/tests/plugins/crashing"; }
  Words always_crashing() const {
    return {"~batcher", "+batcher={name: test_faulty, sequence_length: 6}", "--plugin-dir", crashing()};
  }
};

TEST_F(RestartsTest, AKilledProcessLeavesNoTraceInTheResult) {
  ASSERT_EQ(run("whole", longer({})).code, 0);
  Job job(this->job("cut", longer({"--restarts", "2"})));
  kill(training_at(job, "cut"), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_FALSE(model("whole", kSteps).empty());
  EXPECT_TRUE(model("cut", kSteps) == model("whole", kSteps));
  EXPECT_EQ(metrics("cut"), metrics("whole"));
  EXPECT_THAT(log("cut"), Names("restart 1 of 2", "SIGKILL", "continues from step", "resumed from"));
  EXPECT_EQ(json_of("cut", "status.json")["state"], "done");
  const json starts = json_of("cut", "provenance.json")["starts"];
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_FALSE(starts[0].contains("restart"));
  EXPECT_EQ(starts[1]["restart"]["number"], 1);
  EXPECT_EQ(starts[1]["restart"]["of"], 2);
  EXPECT_FALSE(starts[1]["restart"].contains("ranks"));
  EXPECT_THAT(starts[1]["restart"]["reason"].get<std::string>(), HasSubstr("SIGKILL"));
  // The output of the command is that of its last start.
  EXPECT_THAT(job.out(), Names("run " + path("cut"), "valid ppl"));
}

TEST_F(RestartsTest, ALostRankLeavesNoTraceInTheResult) {
  const Words gloo = longer({"comm={name: gloo, ranks: 3}", "checkpoint.every=20"}, kGlooSteps);
  const Outcome whole = run("whole", gloo);
  if (whole.err.find("no Gloo") != std::string::npos) GTEST_SKIP() << whole.err;
  ASSERT_EQ(whole.code, 0) << whole.err;
  Job job(this->job("cut", joined(gloo, {"--restarts", "1"})));
  kill(rank_of(training_at(job, "cut"), 2), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_FALSE(model("whole", kGlooSteps).empty());
  EXPECT_TRUE(model("cut", kGlooSteps) == model("whole", kGlooSteps));
  EXPECT_THAT(log("cut"), Names("restart 1 of 1", "rank 2", "continues from step"));
  EXPECT_EQ(json_of("cut", "provenance.json")["starts"].size(), 2u);
}

// Its ranks save a checkpoint when the lmx that started them is killed; the next start waits for them.
TEST_F(RestartsTest, TheLmxThatStartedTheRanksIsKilled) {
  const Words gloo = longer({"comm={name: gloo, ranks: 2}", "checkpoint.every=20"}, kGlooSteps);
  const Outcome whole = run("whole", gloo);
  if (whole.err.find("no Gloo") != std::string::npos) GTEST_SKIP() << whole.err;
  Job job(this->job("cut", joined(gloo, {"--restarts", "1"})));
  kill(training_at(job, "cut"), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_FALSE(model("whole", kGlooSteps).empty());
  EXPECT_TRUE(model("cut", kGlooSteps) == model("whole", kGlooSteps));
  EXPECT_THAT(log("cut"), HasSubstr("restart 1 of 1"));
}

TEST_F(RestartsTest, FewerRanksTrainTheSameBatches) {
  ASSERT_EQ(run("whole", longer({"--ranks", "3"})).code, 0);
  Job job(this->job("cut", longer({"--ranks", "3", "--restarts", "2", "--fewer-ranks"})));
  kill(training_at(job, "cut"), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(log("cut"), Names("restart 1 of 2", "with 2 ranks instead of 3", "2 virtual ranks"));
  EXPECT_EQ(json_of("cut", "provenance.json")["starts"][1]["restart"]["ranks"], 2);
  const auto last = [&](const std::string& dir) {
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    json found;
    for (std::string line; std::getline(lines, line);)
      if (json record = json::parse(line); record["split"] == "valid") found = std::move(record);
    return found;
  };
  EXPECT_EQ(last("cut")["step"], kSteps);
  EXPECT_EQ(last("cut")["epoch"], last("whole")["epoch"]);
  EXPECT_NEAR(last("cut")["ppl"].get<double>() / last("whole")["ppl"].get<double>(), 1, 1e-3);
}

// Each worker of a parameter server has its own state.
TEST_F(RestartsTest, ARunThatRefusesFewerRanksKeepsTheirNumber) {
  const Words workers{"sync.rest.params=.*",
                      "sync.rest.strategy=param_server",
                      "sync.rest.codec.kind=one_bit",
                      "train.ema=0",
                      "--ranks",
                      "3"};
  ASSERT_EQ(run("whole", longer(workers)).code, 0);
  Job job(this->job("cut", longer(joined(workers, {"--restarts", "1", "--fewer-ranks"}))));
  kill(training_at(job, "cut"), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(log("cut"), Names("does not continue with 2 ranks", "it continues with 3", "3 virtual ranks"));
  EXPECT_FALSE(model("whole", kSteps).empty());
  EXPECT_TRUE(model("cut", kSteps) == model("whole", kSteps));
  EXPECT_FALSE(json_of("cut", "provenance.json")["starts"].back()["restart"].contains("ranks"));
}

TEST_F(RestartsTest, AFailureThatComesBackEndsTheRun) {
  const Outcome o = run("a", joined(always_crashing(), {"--restarts", "9"}));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, Names("restart 1 of 9", "restart 2 of 9", "2 restarts in a row", "step 0", "test_faulty",
                           "--resume " + path("a")));
  EXPECT_THAT(o.err, Not(HasSubstr("restart 3")));
  EXPECT_EQ(json_of("a", "status.json")["state"], "failed");
}

TEST_F(RestartsTest, TheNumberOfRestartsIsALimit) {
  const Outcome o = run("a", joined(always_crashing(), {"--restarts", "1"}));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, Names("restart 1 of 1", "failed again after 1 restart", "test_faulty"));
  EXPECT_EQ(json_of("a", "provenance.json")["starts"].size(), 2u);
}

TEST_F(RestartsTest, SomeFailuresAreNotRepeated) {
  const Outcome diverged = run("d", {"train.max_loss=0.01", "--restarts", "3"});
  EXPECT_EQ(diverged.code, 1);
  EXPECT_THAT(diverged.err, Names("not started again", "diverge"));
  EXPECT_EQ(json_of("d", "provenance.json")["starts"].size(), 1u);
  const Outcome wrong = run("w", {"model.cells=-1", "--restarts", "3"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, Not(HasSubstr("restart")));
}

TEST_F(RestartsTest, AnInterruptEndsTheSupervisorAndTheRun) {
  Job job(this->job("a", longer({"--restarts", "3"}, 1'000'000)));
  training_at(job, "a");
  kill(job.pid(), SIGINT);
  EXPECT_EQ(job.wait(), 130) << job.err();
  EXPECT_EQ(json_of("a", "status.json")["state"], "interrupted");
  EXPECT_EQ(processes_of("a"), 0);
  EXPECT_THAT(log("a"), Not(HasSubstr("restart")));
}

TEST_F(RestartsTest, ARunWithoutItsSupervisorSavesAndEnds) {
  Job job(this->job("a", longer({"--restarts", "3"}, 1'000'000)));
  const pid_t child = training_at(job, "a");
  kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.all_gone({{0, child}}));
  EXPECT_EQ(json_of("a", "status.json")["state"], "interrupted");
}

TEST_F(RestartsTest, ALauncherRestartsItsRanksItself) {
  auto settings = environment();
  settings.insert(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}, {"GROUP_RANK", "0"}});
  const Outcome o = run_process(command("a", {"comm=gloo", "--restarts", "3"}), settings);
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("--restarts", "torchrun --max-restarts", "--resume auto"));
  EXPECT_FALSE(fs::exists(path("a")));
}

}  // namespace
}  // namespace lmx_test
