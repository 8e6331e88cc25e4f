// Sweeps, and points of sweeps, that are killed or receive a signal.
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

class KilledSweep : public SweepTest {
 protected:
  size_t ended(const std::string& out) const {
    size_t count = 0;
    std::istringstream lines(read_file(folder_ / out / "journal.jsonl"));
    for (std::string line; std::getline(lines, line);) count += line.find("\"event\":\"end\"") != std::string::npos;
    return count;
  }
  // Processes that train below the folder. The kernel ends them with their parent, which takes a moment.
  std::vector<pid_t> trainers(const std::string& out) const {
    std::vector<pid_t> all;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string line = read_file(entry.path() / "cmdline");
      if (line.find("run.dir=") != std::string::npos && line.find(path(out) + "/") != std::string::npos)
        all.push_back(static_cast<pid_t>(std::stol(name)));
    }
    return all;
  }
  // Each point's records and parameters equal those of an undisturbed sweep, and each point ended once.
  void expect_as_whole(const std::string& out, int64_t steps) const {
    std::map<std::string, int> done;
    for (const Json& event : events(out))
      if (event["event"] == "end" && event["outcome"] == "done") ++done[event["point"]];
    for (const std::string& id : ids("whole")) {
      EXPECT_EQ(done[id], 1) << id;
      EXPECT_EQ(metrics(out + "/points/" + id), metrics("whole/points/" + id)) << id;
      EXPECT_EQ(model(out + "/points/" + id, steps), model("whole/points/" + id, steps)) << id;
      EXPECT_EQ(status(out, id), "done");
    }
    EXPECT_EQ(read_file(folder_ / out / "table.csv"), read_file(folder_ / "whole/table.csv"));
  }
};

// Killed in the first point, between points, and towards the end; each time the running points are lost.
TEST_F(KilledSweep, TwentyPointsKilledFiveTimesRunOnceEach) {
  const Words more{"train.steps=30", "optimizer.lr=0.001,0.003,0.01,0.03", "model.cells=8,12,16,20,24", "--jobs", "2"};
  ASSERT_THAT(sweep("whole", more), Succeeds());
  ASSERT_EQ(ids("whole").size(), 20u);
  Words command = sweep_words("killed", more);
  command.insert(command.end(), {"--resume", "auto"});
  const std::vector<size_t> moments{0, 3, 7, 12, 16};
  for (const size_t moment : moments) {
    const pid_t child = start(command);
    ASSERT_TRUE(wait_until(child, [&] { return ended("killed") >= moment && !trainers("killed").empty(); })) << moment;
    kill(child, SIGKILL);
    ASSERT_EQ(wait_for(child), 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(path("killed/table.csv")));
  ASSERT_THAT(run_process(command, environment()), Warns("20 points"));
  EXPECT_EQ(count_ends("killed", "done"), 20u);
  expect_as_whole("killed", 30);
}

// Killed between the end of a run and its entry in the sweep's journal, and before the first point: written results are
// read again.
TEST_F(KilledSweep, WhatHasEndedUnnoticedIsNotRunAgain) {
  const Words more{"train.steps=10", "seed=1,2"};
  ASSERT_THAT(sweep("whole", more), Succeeds());
  fs::copy(folder_ / "whole", folder_ / "cut", fs::copy_options::recursive);
  std::string journal = read_file(folder_ / "cut/journal.jsonl");
  journal.resize(journal.rfind("{\"time\"") + 20);  // the entry of the second point's end is incomplete
  write("cut/journal.jsonl", journal);
  const std::string starts = read_file(folder_ / "cut/points/1-seed=2/provenance.json");
  ASSERT_THAT(resume("cut"), Succeeds());
  EXPECT_EQ(read_file(folder_ / "cut/points/1-seed=2/provenance.json"), starts);
  EXPECT_EQ(count_ends("cut", "done"), 2u);
  EXPECT_EQ(read_file(folder_ / "cut/table.csv"), read_file(folder_ / "whole/table.csv"));
}

TEST_F(KilledSweep, APointThatIsKilledGoesOn) {
  const Words more{"train.steps=600", "train.eval_every=600", "checkpoint.every=20", "seed=1,2"};
  ASSERT_THAT(sweep("whole", more), Succeeds());
  const auto kill_first = [&](const std::string& out, const Words& options, int signal) {
    const pid_t child = start(sweep_words(out, joined(more, options)));
    EXPECT_TRUE(wait_for_checkpoint(child, out + "/points/0-seed=1", 40));
    for (const pid_t trainer : trainers(out)) kill(trainer, signal);
    return wait_for(child);
  };
  // Without --retry this is an outcome: the sweep continues with the other points, and with this one after a resume.
  ASSERT_EQ(kill_first("once", {}, SIGKILL), 0);
  EXPECT_EQ(ends("once").at("0-seed=1")["outcome"], "preempted");
  EXPECT_EQ(ends("once").at("1-seed=2")["outcome"], "done");
  ASSERT_THAT(resume("once"), Succeeds());
  expect_as_whole("once", 600);
  ASSERT_EQ(kill_first("retried", {"--retry", "1"}, SIGTERM), 0);
  expect_as_whole("retried", 600);
}

TEST_F(KilledSweep, SignalsEndItAfterCheckpoints) {
  const Words more{"train.steps=600", "train.eval_every=600", "checkpoint.every=600", "seed=1,2,3", "--jobs", "2"};
  ASSERT_THAT(sweep("whole", more), Succeeds());
  int interrupted = 0;
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}}) {
    const std::string out = "signal" + std::to_string(signal);
    const pid_t child = start(sweep_words(out, more));
    ASSERT_TRUE(wait_for_records(child, out + "/points/0-seed=1"));
    kill(child, signal);
    ASSERT_EQ(wait_for(child), code);
    const auto ended = ends(out);  // on a busy machine one of the two may have ended before the signal
    for (const std::string& id : ids("whole")) {
      const std::string state = status(out, id);
      EXPECT_TRUE(ended.count(id) ? state == "done" : state != "running") << id << ": " << state;
      interrupted += state == "interrupted";
    }
    EXPECT_TRUE(trainers(out).empty());
    ASSERT_THAT(resume(out), Succeeds());
    expect_as_whole(out, 600);
  }
  EXPECT_GT(interrupted, 0);
}

// No configuration is stopped while a point is missing in the comparison, so the best one is not lost.
TEST_F(KilledSweep, HalvingWaitsForAPointThatIsKilled) {
  const Words more{"train.steps=600", "train.eval_every=100", "checkpoint.every=20", "optimizer.lr=0.0001,0.001,0.01",
                   "--halving",       "eta=3,min=200"};
  ASSERT_THAT(sweep("whole", more), Succeeds());
  const pid_t child = start(sweep_words("killed", more));
  ASSERT_TRUE(wait_for_checkpoint(child, "killed/points/" + ids("whole")[2], 40));
  for (const pid_t trainer : trainers("killed")) kill(trainer, SIGKILL);
  ASSERT_EQ(wait_for(child), 0);
  EXPECT_GE(count_ends("killed", "preempted"), 1U);
  EXPECT_EQ(read_file(folder_ / "killed/journal.jsonl").find("\"rung\""), std::string::npos);
  EXPECT_THAT(resume("killed").err, Not(HasSubstr("preempted")));
  EXPECT_EQ(read_file(folder_ / "killed/table.csv"), read_file(folder_ / "whole/table.csv"));
}

TEST_F(KilledSweep, HalvingGoesOnWhereItWas) {
  const Words more{"train.steps=60", "optimizer.lr=0.0001,0.001,0.01,0.1", "--halving", "eta=2,min=10"};
  ASSERT_THAT(sweep("whole", more), Succeeds());
  Words command = sweep_words("killed", more);
  command.insert(command.end(), {"--resume", "auto"});
  for (const size_t moment : {1, 4, 5}) {
    const pid_t child = start(command);
    ASSERT_TRUE(wait_until(child, [&] { return ended("killed") >= moment && !trainers("killed").empty(); })) << moment;
    kill(child, SIGKILL);
    ASSERT_EQ(wait_for(child), 128 + SIGKILL);
  }
  ASSERT_THAT(run_process(command, environment()), Succeeds());
  EXPECT_EQ(read_file(folder_ / "killed/table.csv"), read_file(folder_ / "whole/table.csv"));
  for (const std::string& id : ids("whole"))
    EXPECT_EQ(metrics("killed/points/" + id), metrics("whole/points/" + id)) << id;
}

TEST_F(KilledSweep, OneProcessAtATime) {
  const pid_t child = start(sweep_words("out", {"train.steps=1000000", "seed=1,2"}));
  ASSERT_TRUE(wait_for_records(child, "out/points/0-seed=1"));
  const Outcome o = resume("out");
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_THAT(o, Refuses("another process"));
}

// Signals that end a run early: a closed terminal, Slurm's warning, a limit on file sizes.

class EndSignals : public SweepTest {
 protected:
  // A run that is longer than a test, so that only a signal ends it.
  Words endless(const std::string& dir) const {
    return command(dir, {"train.steps=1000000", "checkpoint.every=1000000", "train.eval_every=1000000"});
  }
};

TEST_F(EndSignals, AreTakenAsSigterm) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) {
    const std::string dir = "s" + std::to_string(signal);
    const pid_t child = start(endless(dir));
    ASSERT_TRUE(wait_for_records(child, dir));
    // A terminal that closes sends its signal twice.
    kill(child, signal);
    kill(child, signal);
    EXPECT_EQ(wait_for(child), 143);
    EXPECT_THAT(read_file(folder_ / dir / "status.json"), HasSubstr("\"interrupted\""));
    EXPECT_THAT(read_file(folder_ / dir / "log.txt"), HasSubstr(std::string("SIG") + sigabbrev_np(signal)));
    EXPECT_FALSE(std::filesystem::is_empty(folder_ / dir / "checkpoints"));
  }
}

TEST_F(EndSignals, NohupIsHeeded) {
  const pid_t child = start({"/bin/sh", "-c", "trap '' HUP; exec \"$0\" \"$@\"", build_path("/bin/lmx"), "run",
                             path("tiny.yaml"), "run.dir=" + path("n"), "train.steps=1500"});
  ASSERT_TRUE(wait_for_records(child, "n"));
  kill(child, SIGHUP);
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_THAT(read_file(folder_ / "n" / "status.json"), HasSubstr("\"done\""));
}

TEST_F(EndSignals, ASweepsPointsWriteCheckpoints) {
  const pid_t child = start(sweep_words(
      "s", {"train.steps=1000000", "checkpoint.every=1000000", "train.eval_every=1000000", "seed=1,2", "--jobs", "2"}));
  for (const char* point : {"s/points/0-seed=1", "s/points/1-seed=2"}) ASSERT_TRUE(wait_for_records(child, point));
  kill(child, SIGHUP);
  kill(child, SIGHUP);
  EXPECT_EQ(wait_for(child), 143);
  for (const std::string& id : ids("s")) EXPECT_EQ(status("s", id), "interrupted") << id;
}

// `ulimit -f`, in blocks of 512 bytes: by default the process would be killed without a message.
TEST_F(EndSignals, ALimitOnFileSizesIsAnError) {
  std::string words = "ulimit -f 4; exec";
  for (const std::string& word : command("f")) words += " '" + word + "'";
  EXPECT_THAT(run_process({"/bin/sh", "-c", words}, environment()), Fails("error: ", "File too large"));
}

// Commands print to a file on a full disk. None of them may report success.
TEST_F(EndSignals, AFullDiskBehindStdoutIsAnError) {
  ASSERT_THAT(run("r", {"train.steps=10"}), Succeeds());
  write("text", "a b c\n");
  const std::string recipe = path("tiny.yaml"), folder = path("r");
  for (const Words& words : {Words{"config", recipe},
                             {"config", recipe, "--explain"},
                             {"eval", folder},
                             {"report", folder},
                             {"generate", folder, "--tokens", "5"},
                             {"bleu", path("text"), "--hypothesis", path("text")},
                             {"plugins", "list"},
                             {"data", "list"},
                             {"run", recipe, "--dry-run"},
                             {"sweep", recipe, "seed=1,2", "--dry-run"},
                             {"completion", "bash"},
                             {"average", path("mean.safetensors"), "--last", "1", folder},
                             {"--version"},
                             {"run", "--help"},
                             {"__complete", "lmx", "r"}}) {
    std::string line = "exec " + build_path("/bin/lmx");
    for (const std::string& word : words) line += " '" + word + "'";
    const Outcome o = run_process({"/bin/sh", "-c", line + " > /dev/full"}, environment());
    EXPECT_EQ(o.code, 1) << line << "\n" << o.err;
    EXPECT_THAT(o.err, Names("No space left on device")) << line;
  }
}

// An earlier error determines the exit code.
TEST_F(EndSignals, AFullDiskHidesNoOtherError) {
  EXPECT_THAT(
      run_process({"/bin/sh", "-c", "exec " + build_path("/bin/lmx") + " config " + path("none") + " > /dev/full"},
                  environment()),
      Refuses(path("none")));
}

// Without a terminal, a log gets a progress line every LMX_PROGRESS_S seconds, by default 30.
TEST_F(EndSignals, ProgressWithoutATerminal) {
  auto often = environment();
  EXPECT_EQ(run_process(command("quiet"), often).err.find("loss"), std::string::npos);
  often["LMX_PROGRESS_S"] = "0.001";
  const Outcome o = run_process(command("often"), often);
  EXPECT_THAT(o, Warns(testing::ContainsRegex("\nstep [0-9]+/120  ETA [0-9a-z]+  sampled loss [0-9.]+  ")));
  EXPECT_EQ(o.err.find('\r'), std::string::npos);
  EXPECT_EQ(o.err.find('\033'), std::string::npos);
  often["LMX_PROGRESS_S"] = "0";
  EXPECT_EQ(run_process(command("never"), often).err.find("loss"), std::string::npos);
}

}  // namespace
}  // namespace lmx_test
