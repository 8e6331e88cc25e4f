// Signals that end a run early: a closed terminal, Slurm's warning, a limit on file sizes.
#include <gmock/gmock.h>

#include "names.h"
#include "paths.h"
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

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
  const Outcome o = run_process({"/bin/sh", "-c", words}, environment());
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_THAT(o.err, Names("error: ", "File too large"));
}

// Commands print to a file on a full disk. None of them may report success.
TEST_F(EndSignals, AFullDiskBehindStdoutIsAnError) {
  ASSERT_EQ(run("r", {"train.steps=10"}).code, 0);
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
  const Outcome o = run_process(
      {"/bin/sh", "-c", "exec " + build_path("/bin/lmx") + " config " + path("none") + " > /dev/full"}, environment());
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names(path("none")));
}

// Without a terminal, a log gets a progress line every LMX_PROGRESS_S seconds, by default 30.
TEST_F(EndSignals, ProgressWithoutATerminal) {
  auto often = environment();
  EXPECT_EQ(run_process(command("quiet"), often).err.find("loss"), std::string::npos);
  often["LMX_PROGRESS_S"] = "0.001";
  const Outcome o = run_process(command("often"), often);
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.err, testing::ContainsRegex("\nstep [0-9]+/120  ETA [0-9a-z]+  sampled loss [0-9.]+  "));
  EXPECT_EQ(o.err.find('\r'), std::string::npos);
  EXPECT_EQ(o.err.find('\033'), std::string::npos);
  often["LMX_PROGRESS_S"] = "0";
  EXPECT_EQ(run_process(command("never"), often).err.find("loss"), std::string::npos);
}

}  // namespace
}  // namespace lmx_test
