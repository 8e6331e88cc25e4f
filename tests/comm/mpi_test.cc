// The MPI group with real processes: every operation, and every way in which a rank can be lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "job.h"
#include "lmx/error.h"
#include "mpi_here.h"
#include "names.h"

namespace lmx_test {
namespace {

using lmx::str;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  }

  // Started by lmx: the process starts mpirun itself. `more` is appended to the config.
  static std::vector<std::string> started(const std::string& scenario, int ranks, const std::string& more = "",
                                          int who = -1) {
    return {LMX_MPI_RANK, scenario, config(ranks, more), std::to_string(who)};
  }
  static std::string config(int ranks, const std::string& more) {
    return str("{name: mpi, ranks: ", ranks, more.empty() ? "" : ", ", more, "}");
  }
  // Started by the user's mpirun.
  static std::vector<std::string> below_mpirun(int processes, std::vector<std::string> command) {
    std::vector<std::string> words{"mpirun", "-n", std::to_string(processes), "--oversubscribe", "--bind-to",
                                   "none",   "-q"};
    words.insert(words.end(), {"--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"});
    if (geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  static size_t errors_in(const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find("error:"); at != std::string::npos; at = text.find("error:", at + 1)) ++count;
    return count;
  }
  // mpirun's event library sometimes reports a descriptor that was closed with its process: "[warn] Epoll MOD(1) on
  // ...".
  static int64_t lines_of_lmx(const std::string& err) {
    int64_t count = 0;
    std::istringstream lines(err);
    for (std::string line; std::getline(lines, line);) count += !line.empty() && !line.starts_with("[warn] Epoll");
    return count;
  }
  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> found;
    std::ifstream list(str("/proc/", parent, "/task/", parent, "/children"));
    for (pid_t child = 0; list >> child;) found.push_back(child);
    return found;
  }
  // Expects one message that matches, and no remaining process.
  static void expect_one_message(Job& job, int code, const testing::Matcher<std::string>& text) {
    const auto ranks = job.ranks();
    EXPECT_EQ(job.wait(), code);
    const std::string err = job.err();
    EXPECT_THAT(err, text);
    EXPECT_EQ(errors_in(err), 1u) << err;
    EXPECT_EQ(lines_of_lmx(err), 1) << err;
    EXPECT_TRUE(job.all_gone(ranks));
  }
};

class MpiRanks : public Mpi, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Mpi, MpiRanks, testing::Values(1, 2, 3, 4));

TEST_P(MpiRanks, EveryMove) {
  Job job(started("moves", GetParam()));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  EXPECT_THAT(job.out(), HasSubstr(str("done: ", GetParam(), " process")));
}

TEST_P(MpiRanks, NativeSums) {
  Job job(started("native", GetParam(), "reduce: native"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
}

// Very frequent heartbeats do not disturb the operations.
TEST_F(Mpi, EveryMoveUnderFrequentHeartbeats) {
  Job job(started("moves", 3, "heartbeat_s: 0.01, timeout_s: 20"));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST_F(Mpi, FortyMegabytes) {
  Job job(started("large", 3));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST_F(Mpi, BelowMpirun) {
  Job job(below_mpirun(2, started("moves", 0)));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("done: 2 processes (MPI, started by mpirun (Open MPI))"));
}

TEST_F(Mpi, AnotherNumberOfProcessesThanTheRecipeSays) {
  Job job(below_mpirun(2, started("moves", 3)));
  expect_one_message(job, 2, Names("ranks is 3", "started 2"));
}

TEST_F(Mpi, AKilledRankIsNamed) {
  for (const int who : {0, 2}) {
    Job job(started("loop", 3));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    kill(job.ranks().at(who), SIGKILL);
    expect_one_message(job, 1, Names(str("rank ", who, " of 3 on host ")));
    EXPECT_THAT(job.err(), Names("killed"));
  }
}

TEST_F(Mpi, AStoppedRankIsNamed) {
  for (const int who : {0, 1}) {
    Job job(started("loop", 3, "heartbeat_s: 0.1, timeout_s: 2"));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    kill(job.ranks().at(who), SIGSTOP);
    expect_one_message(
        job, 1,
        AllOf(Names(str("rank ", who, " of 3 on host ")), ContainsRegex("has not answered for [23](\\.[0-9]+)? s")));
  }
}

// The whole job is stopped and continued, as by a terminal's Ctrl-Z and `fg` or by a batch system, for longer than
// every time limit.
TEST_F(Mpi, AJobThatWasStoppedAsAWholeGoesOn) {
  Job job(started("one_computes", 2, "heartbeat_s: 0.1, timeout_s: 1, lag_s: 2", 1));
  ASSERT_TRUE(job.wait_for_ranks(2)) << job.err();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 0 waits
  const auto send = [&](int signal) {
    for (const auto& [rank, pid] : job.ranks()) kill(pid, signal);
  };
  send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  send(SIGCONT);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
}

TEST_F(Mpi, AStoppedRankOfTwo) {
  Job job(started("loop", 2, "heartbeat_s: 0.1, timeout_s: 2"));
  ASSERT_TRUE(job.wait_for_ranks(2)) << job.err();
  kill(job.ranks().at(0), SIGSTOP);
  expect_one_message(job, 1, Names("rank 0 of 2 on host "));
}

TEST_F(Mpi, ARankThatComputesTooLongIsNamed) {
  for (const int who : {0, 1}) {
    Job job(started("one_lags", 3, "heartbeat_s: 0.1, lag_s: 1", who));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    expect_one_message(job, 1, Names(str("rank ", who, " of 3 on host "), "lags", "in barrier"));
  }
}

// The others do not wait in a collective, and rank 0 waits for its own thread.
TEST_F(Mpi, AWorkerOfAServerThatSleepsIsNamed) {
  for (const int who : {0, 2}) {
    Job job(started("one_worker_sleeps", 3, "heartbeat_s: 0.1, lag_s: 1", who));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    expect_one_message(job, 1, Names(str("rank ", who, " of 3 on host "), "lags", "computed"));
  }
}

TEST_F(Mpi, TheEndOfARunMayComeLate) {
  Job job(started("ends_early", 2, "heartbeat_s: 0.1, lag_s: 0.5", 0));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

// mpirun has started another program in place of a rank, which therefore never joins.
TEST_F(Mpi, ARankThatNeverJoins) {
  std::vector<std::string> words = below_mpirun(2, started("moves", 0, "heartbeat_s: 0.5, timeout_s: 3, lag_s: 1"));
  words.insert(words.end(), {":", "-n", "1", "sleep", "50"});
  Job job(words);
  expect_one_message(job, 1, Names("rank 0 of 3", "3 s", "comm.lag_s"));
}

TEST_F(Mpi, ARankThatNeverLeaves) {
  Job job(started("stays", 3, "heartbeat_s: 0.1, timeout_s: 1", 2));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  expect_one_message(job, 1, Names("rank 0 of 3:", "another rank"));
}

TEST_F(Mpi, DifferentCollectives) {
  Job job(started("one_differs", 3, "heartbeat_s: 0.1", 2));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  expect_one_message(job, 1, Names("in barrier", "rank 2 is in all_gather"));
}

TEST_F(Mpi, EveryRankWaits) {
  Job job(started("all_receive", 2, "heartbeat_s: 0.1, lag_s: 1"));
  ASSERT_TRUE(job.wait_for_ranks(2)) << job.err();
  expect_one_message(job, 1, Names("every rank waits"));
}

TEST_F(Mpi, AnErrorOfOneRankNamesIt) {
  Job job(started("one_throws", 3, "", 1));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  expect_one_message(job, 2, StartsWith("error: rank 1 of 3: this rank has had enough"));
}

TEST_F(Mpi, AnErrorOfRankZero) {
  Job job(started("one_throws", 3, "", 0));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  expect_one_message(job, 2, StartsWith("error: this rank has had enough"));
}

TEST_F(Mpi, AnErrorOfAllRanksIsSaidOnce) {
  Job job(started("all_throw", 4));
  ASSERT_TRUE(job.wait_for_ranks(4)) << job.err();
  expect_one_message(job, 2, StartsWith("error: the same everywhere"));
}

// Also if rank 0, which usually reports errors, finds it late.
TEST_F(Mpi, AnErrorThatSomeFindLaterIsSaidOnce) {
  Job job(started("throw_apart", 3, "", 2));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  expect_one_message(job, 2, Names("same everywhere"));
}

TEST_F(Mpi, RecipesThatDiffer) {
  Job job(started("disagree", 3, "", 2));
  expect_one_message(job, 2, Names("rank 2", "optimizer.lr", "0.1 there", "0.2 on rank 0"));
}

// Signals to the process that the user has started, as sent by a shell, Slurm or a terminal.
TEST_F(Mpi, SignalsReachTheRanks) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    Job job(started("until_signal", 3));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    const auto ranks = job.ranks();
    kill(job.pid(), signal);
    EXPECT_EQ(job.wait(), signal == SIGINT ? 130 : 143) << job.err();
    EXPECT_EQ(job.err(), "");
    EXPECT_TRUE(job.all_gone(ranks));
  }
}

// mpirun itself is killed: its ranks cannot print, and no other process removes their files in shared memory.
TEST_F(Mpi, AKilledMpirunIsToldOf) {
  Job job(started("loop", 3));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  const std::vector<pid_t> children = children_of(job.pid());
  ASSERT_EQ(children.size(), 1u);
  // The name of the job's folder in shared memory is part of mpirun's command line; other jobs run at the same time.
  std::ostringstream line;
  line << std::ifstream(str("/proc/", children[0], "/cmdline"), std::ios::binary).rdbuf();
  std::string words = line.str();
  std::replace(words.begin(), words.end(), '\0', ' ');
  const size_t at = words.find("/dev/shm/lmx-mpi-");
  ASSERT_NE(at, std::string::npos) << words;
  const std::filesystem::path folder = words.substr(at, words.find_first_of(" ,:", at) - at);
  ASSERT_TRUE(std::filesystem::exists(folder)) << folder;
  kill(children[0], SIGKILL);
  expect_one_message(job, 1, Names("mpirun", "SIGKILL"));
  EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
}

// A script replaces mpirun and ends as mpirun does if a rank was killed before mpirun could watch the others.
TEST_F(Mpi, AnEndWithoutAWordIsExplained) {
  const std::filesystem::path folder = testing::TempDir() + str("lmx_mpirun_", getpid());
  std::filesystem::create_directories(folder);
  const auto ends = [&](const std::string& script) {
    for (const char* name : {"mpirun", "mpirun.openmpi", "mpiexec.hydra"}) {
      std::ofstream(folder / name) << "#!/bin/sh\n" << script << "\n";
      std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
    }
    auto job = std::make_unique<Job>(std::vector<std::string>{"env", "PATH=" + folder.string() + ":/bin:/usr/bin",
                                                              LMX_MPI_RANK, "moves", config(2, "")});
    job->wait();
    return job;
  };
  expect_one_message(*ends("exit 137"), 1, Names("a rank", "SIGKILL", "137"));
  expect_one_message(*ends("exit 3"), 1, Names("exit code 3"));
  expect_one_message(*ends("kill -SEGV $$"), 1, Names("mpirun", "SIGSEGV"));
  // If a rank has reported an error, no second message is added, even if stderr has other lines.
  expect_one_message(*ends("echo 'error: [x] rank 1 has had enough' >&2; exit 1"), 1, StartsWith("error: [x] rank 1"));
  const auto done = ends("echo 'a warning' >&2; exit 0");
  EXPECT_EQ(done->wait(), 0);
  EXPECT_EQ(done->err(), "a warning\n");
  std::filesystem::remove_all(folder);
}

// Open MPI would print twenty lines of stack trace.
TEST_F(Mpi, ACrashOfARankIsOneMessage) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const std::vector<int> signals{SIGABRT};  // at SIGSEGV a sanitizer writes its own report
#else
  const std::vector<int> signals{SIGSEGV, SIGABRT};
#endif
  for (const int signal : signals) {
    Job job(started("loop", 3));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    kill(job.ranks().at(1), signal);
    expect_one_message(job, 1, Names("rank 1 of 3 on host "));
  }
}

TEST_F(Mpi, NobodyIsLeftWhenTheStarterIsKilled) {
  Job job(started("loop", 3));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  const auto ranks = job.ranks();
  kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.all_gone(ranks));
}

TEST_F(Mpi, WithoutRanksOrALauncher) {
  Job job(started("moves", 0));
  expect_one_message(job, 2, Names("comm.ranks=4"));
}

TEST_F(Mpi, WithoutMpirun) {
  Job job({"env", "PATH=/nowhere", LMX_MPI_RANK, "moves", config(2, "")});
  expect_one_message(job, 2, Names("mpirun", "PATH", "openmpi-bin"));
}

// With an mpirun that starts nothing.
TEST_F(Mpi, MoreRanksThanAHostIsFor) {
  const std::filesystem::path folder = testing::TempDir() + "lmx_no_mpirun";
  std::filesystem::create_directories(folder);
  for (const char* name : {"mpirun", "mpirun.openmpi", "mpiexec.hydra"}) {
    std::filesystem::remove(folder / name);
    std::filesystem::create_symlink("/bin/true", folder / name);
  }
  const std::string path = "PATH=" + folder.string();
  const int crowd = 4 * static_cast<int>(std::thread::hardware_concurrency()) + 1;
  Job many({"env", path, LMX_MPI_RANK, "moves", config(crowd, "")});
  EXPECT_EQ(many.wait(), 0);
  EXPECT_THAT(many.err(), Names(str(crowd, " processes on "), "comm.ranks="));
  Job few({"env", path, LMX_MPI_RANK, "moves", config(2, "")});
  EXPECT_EQ(few.wait(), 0);
  EXPECT_EQ(few.err(), "");
  std::filesystem::remove_all(folder);
}

TEST_F(Mpi, AForeignMpirunDoesNotStartRanksForEver) {
  Job job({"env", "LMX_STARTED_BY_MPIRUN=1", LMX_MPI_RANK, "moves", config(2, "")});
  expect_one_message(job, 2, Names("another MPI"));
}

TEST_F(Mpi, ALauncherThatIsNotMpis) {
  Job job({"env", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", LMX_MPI_RANK, "moves",
           config(2, "")});
  expect_one_message(job, 2, Names("rank 1 of 2: [comm] name=mpi:", "torchrun"));
}

TEST_F(Mpi, ALauncherOfAnotherMpi) {
  Job job({"env", "PMI_RANK=0", "PMI_SIZE=2", LMX_MPI_RANK, "moves", config(2, "")});
  expect_one_message(job, 2, Names("2 processes", "MPI sees 1", "--mpi=pmix"));
}

TEST_F(Mpi, ConfigsThatCannotWork) {
  Job short_limit(started("moves", 2, "timeout_s: 2"));
  expect_one_message(short_limit, 2, Names("3 heartbeats"));
  Job unknown(started("moves", 2, "reduce: fast"));
  expect_one_message(unknown, 2, Names("reduce"));
}

}  // namespace
}  // namespace lmx_test
