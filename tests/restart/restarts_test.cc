// `lmx run --restarts N`: a run that loses its process or a rank ends with the bits of a run that lost nothing.
#include "comm/job.h"
#include "comm/mpi_here.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using nlohmann::json;

constexpr int kSteps = 400;
constexpr int kGroupSteps = 70;  // each step of several processes takes longer

class RestartsTest : public RunTest {
 protected:
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
  // Waits until the run has saved a checkpoint from `step` on. Returns the lmx that trains. Throws if there is none:
  // kill(-1) would end every process.
  pid_t training_at(const Job& job, const std::string& dir, int step = 20) const {
    EXPECT_TRUE(wait_for_checkpoint(job.pid(), dir, step)) << job.err();
    const std::vector<pid_t> children = children_of(job.pid());
    if (children.size() != 1) throw std::runtime_error("not one child: " + job.err());
    return children.front();
  }
  // The process of a rank below an lmx that has started the ranks, itself or by mpirun.
  static pid_t rank_of(pid_t starter, int rank) {
    for (std::vector<pid_t> level = children_of(starter), next; !level.empty(); level = std::exchange(next, {}))
      for (const pid_t child : level) {
        const std::string variables = '\0' + read_file("/proc/" + std::to_string(child) + "/environ");
        for (const char* name : {"LMX_RANK=", "OMPI_COMM_WORLD_RANK="})
          if (variables.find('\0' + (name + std::to_string(rank)) + '\0') != std::string::npos) return child;
        for (const pid_t grandchild : children_of(child)) next.push_back(grandchild);
      }
    throw std::runtime_error("rank " + std::to_string(rank) + " has no process");
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
  // A run that crashes in each of its starts.
  Outcome crashing(const Words& more) const {
    const Words words{"~batcher", "+batcher={name: test_batcher, sequence_length: 6, fault: 1}", "--plugin-dir",
                      build_path("/tests/plugins/own_kinds")};
    return run_process(command("a", joined(words, more)), crashes_unhandled(environment()));
  }
};

TEST_F(RestartsTest, AKilledProcessLeavesNoTraceInTheResult) {
  ASSERT_THAT(run("whole", longer({})), Succeeds());
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

// Runs of several processes.
class GroupRestarts : public RestartsTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    RestartsTest::SetUp();
    if (IsSkipped()) return;
    if (const std::string why = why_no_mpi(); GetParam() == std::string("mpi") && !why.empty()) GTEST_SKIP() << why;
    const Outcome planned = run("planned", joined(of_ranks(3), {"--dry-run"}));
    if ((planned.out + planned.err).find("no Gloo") != std::string::npos) GTEST_SKIP() << planned.err;
  }
  static Words of_ranks(int ranks) {
    return longer({std::string("comm={name: ") + GetParam() + ", ranks: " + std::to_string(ranks) + "}"}, kGroupSteps);
  }
  void expect_whole(Job& job) const {
    EXPECT_EQ(job.wait(), 0) << job.err();
    const Outcome whole = run("whole", of_ranks(3));
    ASSERT_THAT(whole, Succeeds());
    ASSERT_FALSE(model("whole", kGroupSteps).empty());
    EXPECT_TRUE(model("cut", kGroupSteps) == model("whole", kGroupSteps));
    EXPECT_EQ(json_of("cut", "provenance.json")["starts"].size(), 2u);
    EXPECT_EQ(processes_of("cut"), 0);
  }
};
INSTANTIATE_TEST_SUITE_P(All, GroupRestarts, testing::Values("gloo", "mpi"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(GroupRestarts, ALostRankLeavesNoTraceInTheResult) {
  Job job(this->job("cut", joined(of_ranks(3), {"--restarts", "1"})));
  kill(rank_of(training_at(job, "cut", 10), 2), SIGKILL);
  expect_whole(job);
  EXPECT_THAT(log("cut"), Names("restart 1 of 1", "rank 2", "continues from step"));
}

// Its ranks save a checkpoint when the lmx that started them is killed; mpirun ends them a second later. The supervisor
// waits for all of them before it starts the run again, here for one that cannot end because it is stopped.
TEST_P(GroupRestarts, TheLmxThatStartedTheRanksIsKilled) {
  Job job(this->job("cut", joined(of_ranks(3), {"--restarts", "1"})));
  const pid_t starter = training_at(job, "cut", 10), rank = rank_of(starter, 1);
  if (GetParam() == std::string("gloo")) kill(rank, SIGSTOP);
  kill(starter, SIGKILL);
  if (GetParam() == std::string("gloo")) {
    EXPECT_TRUE(job.all_gone({{0, starter}}));  // the supervisor knows
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_EQ(kill(rank, 0), 0);
    EXPECT_THAT(log("cut"), Not(HasSubstr("restart 1 of 1")));
    kill(rank, SIGCONT);
  }
  expect_whole(job);
  EXPECT_THAT(log("cut"), HasSubstr("restart 1 of 1"));
}

TEST_P(GroupRestarts, FewerRanks) {
  Job job(this->job("cut", joined(of_ranks(3), {"--restarts", "1", "--fewer-ranks"})));
  kill(rank_of(training_at(job, "cut", 10), 2), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(log("cut"), Names("restart 1 of 1", "with 2 ranks instead of 3", "2 processes"));
  EXPECT_FALSE(model("cut", kGroupSteps).empty());
}

TEST_F(RestartsTest, FewerRanksTrainTheSameBatches) {
  ASSERT_THAT(run("whole", longer({"--ranks", "3"})), Succeeds());
  Job job(this->job("cut", longer({"--ranks", "3", "--restarts", "2", "--fewer-ranks"})));
  kill(training_at(job, "cut"), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(log("cut"), Names("restart 1 of 2", "with 2 ranks instead of 3", "2 virtual ranks"));
  EXPECT_EQ(json_of("cut", "provenance.json")["starts"][1]["restart"]["ranks"], 2);
  const auto last = [&](const std::string& dir) { return records(dir, "valid").back(); };
  EXPECT_EQ(last("cut")["step"], kSteps);
  EXPECT_EQ(last("cut")["epoch"], last("whole")["epoch"]);
  EXPECT_NEAR(last("cut")["ppl"].get<double>() / last("whole")["ppl"].get<double>(), 1, 1e-3);
}

// Each worker of a parameter server has its own state. After the refusal no restart uses fewer ranks.
TEST_F(RestartsTest, ARunThatRefusesFewerRanksKeepsTheirNumber) {
  const Words workers{"sync.rest.params=.*",
                      "sync.rest.strategy=param_server",
                      "sync.rest.codec.kind=one_bit",
                      "train.ema=0",
                      "--ranks",
                      "3"};
  ASSERT_THAT(run("whole", longer(workers)), Succeeds());
  Job job(this->job("cut", longer(joined(workers, {"--restarts", "2", "--fewer-ranks"}))));
  kill(training_at(job, "cut"), SIGKILL);
  kill(training_at(job, "cut", 200), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::string text = log("cut"), refusal = "does not continue with 2 ranks";
  EXPECT_THAT(text, Names("restart 1 of 2", "with 2 ranks instead of 3", refusal, "it continues with 3",
                          "3 virtual ranks", "restart 2 of 2"));
  EXPECT_EQ(text.find(refusal), text.rfind(refusal));
  EXPECT_THAT(text.substr(text.find("restart 2 of 2")), Not(HasSubstr("instead of")));
  EXPECT_FALSE(model("whole", kSteps).empty());
  EXPECT_TRUE(model("cut", kSteps) == model("whole", kSteps));
  const json starts = json_of("cut", "provenance.json")["starts"];
  ASSERT_EQ(starts.size(), 3u);  // a refused start is not recorded
  for (const json& start : {starts[1], starts[2]}) EXPECT_FALSE(start["restart"].contains("ranks"));
}

TEST_F(RestartsTest, AFailureThatComesBackEndsTheRun) {
  // One error for each start.
  EXPECT_THAT(crashing({"--restarts", "9"}), ended(1, &Outcome::err,
                                                   Names("restart 1 of 9", "restart 2 of 9", "2 restarts in a row",
                                                         "step 0", "test_batcher", "--resume " + path("a")),
                                                   Not(HasSubstr("restart 3"))));
  EXPECT_EQ(json_of("a", "status.json")["state"], "failed");
}

TEST_F(RestartsTest, TheNumberOfRestartsIsALimit) {
  EXPECT_THAT(crashing({"--restarts", "1"}),
              ended(1, &Outcome::err, "restart 1 of 1", "failed again after 1 restart", "test_batcher"));
  EXPECT_EQ(json_of("a", "provenance.json")["starts"].size(), 2u);
}

TEST_F(RestartsTest, SomeFailuresAreNotRepeated) {
  EXPECT_THAT(run("d", {"train.max_loss=0.01", "--restarts", "3"}), Fails("not started again", "diverge"));
  EXPECT_EQ(json_of("d", "provenance.json")["starts"].size(), 1u);
  EXPECT_THAT(run("w", {"model.cells=-1", "--restarts", "3"}), Refuses(Not(HasSubstr("restart"))));
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
  EXPECT_THAT(run_process(command("a", {"comm=gloo", "--restarts", "3"}), settings),
              Refuses("--restarts", "torchrun --max-restarts", "--resume auto"));
  EXPECT_FALSE(fs::exists(path("a")));
}

// The end of a run says what it is: diverged, interrupted, done; and what a later start finds is right.

class Ends : public RunTest {
 protected:
  json status(const std::string& dir) const { return json::parse(read_file(folder_ / dir / "status.json")); }
  // The command line for /bin/sh, without its last word.
  std::string line(const std::string& dir, const Words& more = {}) const {
    std::string text = "exec";
    for (const std::string& word : command(dir, more)) text += " '" + word + "'";
    return text;
  }
};

// The last update has no later loss that would show what it has done.
TEST_F(Ends, ParametersThatAreNotFiniteHaveDiverged) {
  const Words wild{"optimizer={name: sgd, lr: 1e39}", "clip=0", "schedule={name: constant}", "train.ema=0"};
  const auto ended = [&](const std::string& dir, const Words& more) {
    const Outcome o = run(dir, joined(wild, more));
    EXPECT_THAT(o, Fails("[train] step 1", "the parameter embedding.weight is not finite"));
    EXPECT_EQ(o.out.find("next:"), std::string::npos) << o.out;
    EXPECT_EQ(status(dir)["state"], "failed");
    EXPECT_EQ(status(dir)["cause"], "diverged");
    EXPECT_THAT(lmx::list_checkpoints(path(dir)), IsEmpty());
  };
  ended("last", {"train.steps=1"});
  ended("pause", {"--until", "1"});
  ended("skip", {"train.steps=1", "train.on_divergence=skip"});
  const std::string ranks = "comm={name: virtual, ranks: 2}";
  ended("ranks", {"train.steps=1", ranks});
  ended("workers", {"train.steps=1", ranks, "sync={all: {params: .*, strategy: param_server}}"});
  ended("processes", {"train.steps=1", "comm={name: gloo, ranks: 2}"});
  ended("passes", {"train.steps=1", "batch.micro=2"});
}

// `lmx run ... | head`: a checkpoint and a true status, as for a closed terminal.
TEST_F(Ends, AReaderThatLeavesIsASignal) {
  const auto leaves = [&](const std::string& dir, const Words& more) {
    const Outcome o =
        run_process({"/bin/sh", "-c",
                     "(" + line(dir, joined({"train.steps=4000", "train.eval_every=20"}, more)) + ") 2>&1 | head -n 1"},
                    environment());
    EXPECT_THAT(o, Succeeds());
    EXPECT_EQ(status(dir)["state"], "interrupted") << dir;
    EXPECT_FALSE(lmx::list_checkpoints(path(dir)).empty()) << dir;
    EXPECT_EQ(read_file(folder_ / dir / "log.txt").find("restart 1"), std::string::npos) << dir;
  };
  leaves("a", {});
  leaves("restarted", {"--restarts", "2"});
  leaves("processes", {"comm={name: gloo, ranks: 2}"});
}

TEST_F(Ends, ClosedStandardStreamsLeaveTheRecordsClean) {
  EXPECT_THAT(run_process({"/bin/sh", "-c", line("a") + " <&- >&- 2>&-"}, environment()), Succeeds());
  std::istringstream lines(read_file(folder_ / "a" / "metrics.jsonl"));
  int records = 0;
  for (std::string text; std::getline(lines, text); ++records) EXPECT_TRUE(json::accept(text)) << text;
  EXPECT_GT(records, 10);
}

// A run could not continue from a checkpoint that another command has changed.
TEST_F(Ends, NoCommandWritesIntoACheckpoint) {
  ASSERT_THAT(run("a"), Succeeds());
  const std::string before = model("a"), file = path("a") + "/checkpoints/step-120/model.safetensors";
  for (const Words& words : {Words{"average", file, "--last", "2", path("a")},
                             {"report", path("a"), "--html", file},
                             {"report", path("a"), "--html", path("a") + "/checkpoints/step-120/page.html"}}) {
    EXPECT_THAT(run_lmx(words, environment()), Refuses("belongs to the checkpoint")) << words[0];
  }
  EXPECT_TRUE(model("a") == before);
  EXPECT_FALSE(fs::exists(path("a") + "/checkpoints/step-120/page.html"));
}

// The content of the data must be the same. Its path may differ.
TEST_F(Ends, DataMayMoveButNotChange) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "w" + std::to_string(i % 29) + " follows v" + std::to_string(i % 31) + "\n";
  write("here.txt", text);
  const std::string recipe = kTinyRecipe;
  write("tiny.yaml", "data: {name: text, files: [" + path("here.txt") + "], valid_fraction: 0.1, vocab_size: 30}\n" +
                         recipe.substr(recipe.find("batcher:")));
  ASSERT_THAT(run("a", {"--until", "30"}), Succeeds());
  ASSERT_THAT(run("whole"), Succeeds());
  fs::rename(path("here.txt"), path("there.txt"));
  const std::string files = "data.files=[" + path("there.txt") + "]";
  EXPECT_THAT(run("a", {"--resume", path("a"), files}), Succeeds());
  EXPECT_EQ(model("a"), model("whole"));
  write("there.txt", text + "one more line\n");
  EXPECT_THAT(run("a", {"--resume", path("a"), files, "train.steps=130"}), Refuses("the data of"));
}

// No user reads the message of such a start, so it takes the checkpoint before a damaged one.
TEST_F(Ends, AnUnattendedStartTakesTheLastIntactCheckpoint) {
  ASSERT_THAT(run("a"), Succeeds());
  const std::string whole = model("a"), last = path("a") + "/checkpoints/step-120/";
  for (const std::string file : {"model.safetensors", "state.json"}) {
    fs::resize_file(last + file, 0);
    EXPECT_THAT(run("a", {"--resume", path("a")}), Refuses(file)) << file;
    EXPECT_THAT(run("a", {"--resume", "auto"}), Warns("warning:", file, "the run continues from", "step-110"));
    EXPECT_TRUE(model("a") == whole) << file;
  }
}

}  // namespace
}  // namespace lmx_test
