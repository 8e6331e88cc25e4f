// Groups of processes, mpi and gloo: every operation, and every way in which a rank can be lost.
#include <memory>
#include <thread>
#include <tuple>

#include "process_jobs.h"

namespace lmx_test {
namespace {

using lmx::str;

class ProcessGroups : public ProcessJobs, public testing::WithParamInterface<const char*> {
 protected:
  ProcessGroups() : ProcessJobs(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(All, ProcessGroups, testing::Values("mpi", "gloo"),
                         [](const auto& each) { return std::string(each.param); });

class ProcessGroupsOf : public ProcessJobs, public testing::WithParamInterface<std::tuple<const char*, int>> {
 protected:
  ProcessGroupsOf() : ProcessJobs(std::get<0>(GetParam())) {}
  static int ranks() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, ProcessGroupsOf,
                         testing::Combine(testing::Values("mpi", "gloo"), testing::Values(1, 2, 3, 4)),
                         [](const auto& each) { return str(std::get<0>(each.param), std::get<1>(each.param)); });

TEST_P(ProcessGroupsOf, EveryMove) {
  EXPECT_THAT(expect_success(started("moves", ranks())), HasSubstr(str("done: ", ranks(), " process")));
}

// Ranks of one host read each other's memory, in gloo by itself and in mpi by the library.
TEST_P(ProcessGroupsOf, LongMoves) {
  expect_success(started("long_moves", ranks()));
}

TEST(ThreadsOfOneProcess, LongMoves) {
  Job job({rank_program(), "long_moves", "{name: virtual, ranks: 4}"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
}

TEST_P(ProcessGroupsOf, NativeSums) {
  expect_success(started("native", ranks(), "reduce: native, ranks_per_node: 2"));
}

// Very frequent heartbeats do not disturb the operations.
TEST_P(ProcessGroups, EveryMoveUnderFrequentHeartbeats) {
  Job job(started("moves", 3, "heartbeat_s: 0.01, timeout_s: 20"));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST_P(ProcessGroups, FortyMegabytes) {
  Job job(started("large", 3));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST_P(ProcessGroups, AKilledRankIsNamed) {
  for (const int who : {0, 2}) {
    Job job(started("loop", 3));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    kill(job.ranks().at(who), SIGKILL);
    expect_one_message(job, 1, Names(str("rank ", who, " of 3 on host ")));
    EXPECT_THAT(job.err(), Names("killed"));
  }
}

TEST_P(ProcessGroups, AStoppedRankIsNamed) {
  for (const int who : {0, 1}) {
    Job job(started("loop", 3, "heartbeat_s: 0.1, timeout_s: 2"));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    kill(job.ranks().at(who), SIGSTOP);
    expect_one_message(job, 1,
                       AllOf(Names(str("rank ", who, " of 3 on host ")),
                             ContainsRegex("has not answered for ([2-9]|[1-9][0-9])(\\.[0-9])? s")));
  }
}

// The whole job is stopped and continued, as by a terminal's Ctrl-Z and `fg` or by a batch system, for longer than
// every time limit.
TEST_P(ProcessGroups, AJobThatWasStoppedAsAWholeGoesOn) {
  Job job(started("one_computes", 2, "heartbeat_s: 0.1, timeout_s: 1, lag_s: 4", 1));
  ASSERT_TRUE(job.wait_for_ranks(2)) << job.err();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 0 waits
  const auto send = [&](int signal) {
    for (const auto& [rank, pid] : job.ranks()) kill(pid, signal);
  };
  send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(4200));
  send(SIGCONT);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
}

TEST_P(ProcessGroups, AStoppedRankOfTwo) {
  Job job(started("loop", 2, "heartbeat_s: 0.1, timeout_s: 2"));
  ASSERT_TRUE(job.wait_for_ranks(2)) << job.err();
  kill(job.ranks().at(0), SIGSTOP);
  expect_one_message(job, 1, Names("rank 0 of 2 on host "));
}

TEST_P(ProcessGroups, ARankThatComputesTooLongIsNamed) {
  for (const int who : {0, 1}) {
    expect_end(started("one_lags", 3, "heartbeat_s: 0.1, lag_s: 1", who), 3, 1,
               Names(str("rank ", who, " of 3 on host "), "lags", "in barrier"));
  }
}

// The others do not wait in a collective, and rank 0 waits for its own thread.
TEST_P(ProcessGroups, AWorkerOfAServerThatSleepsIsNamed) {
  for (const int who : {0, 2}) {
    expect_end(started("one_worker_sleeps", 3, "heartbeat_s: 0.1, lag_s: 1", who), 3, 1,
               Names(str("rank ", who, " of 3 on host "), "lags", "computed"));
  }
}

TEST_P(ProcessGroups, TheEndOfARunMayComeLate) {
  Job job(started("ends_early", 2, "heartbeat_s: 0.1, lag_s: 0.5", 0));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST_P(ProcessGroups, ARankThatNeverLeaves) {
  expect_end(started("stays", 3, "heartbeat_s: 0.1, timeout_s: 1", 2), 3, 1, Names("rank 0 of 3:", "another rank"));
}

TEST_P(ProcessGroups, AMessageOfAnotherLengthIsNamed) {
  std::vector<std::pair<int, int>> cases{{60, 64}, {2000, 20'000}};
  // MPI itself refuses a message that is too long, and compares the pieces of a long one.
  if (std::string(GetParam()) == "gloo")
    cases = {{60, 64},         {64, 60},         {1024, 1023},           {1025, 1024},
             {65'536, 65'537}, {65'537, 65'536}, {70'000, 65'537},       {65'537, 70'000},
             {20'000'000, 64}, {64, 20'000'000}, {20'000'000, 16 << 20}, {16 << 20, 20'000'000}};
  for (const char* scenario : {"gathered_lengths_differ", "message_lengths_differ"}) {
    std::vector<std::unique_ptr<Job>> jobs;  // all at once, because each of them ends in seconds
    for (const auto& [sent, expected] : cases) {
      std::vector<std::string> words = started(scenario, 2, "", sent);
      words.insert(words.begin(), {"env", str("LMX_TEST_EXPECTED=", expected)});
      jobs.push_back(std::make_unique<Job>(words));
    }
    for (size_t i = 0; i < cases.size(); ++i) {
      ASSERT_TRUE(jobs[i]->wait_for_ranks(2)) << jobs[i]->err();
      expect_one_message(
          *jobs[i], 1,
          HasSubstr(str("rank 1 sent ", cases[i].first, " bytes where rank 0 expected ", cases[i].second)));
    }
  }
}

TEST_P(ProcessGroups, DifferentCollectives) {
  expect_end(started("one_differs", 3, "heartbeat_s: 0.1", 2), 3, 1, Names("in barrier", "rank 2 is in all_gather"));
}

TEST_P(ProcessGroups, EveryRankWaits) {
  expect_end(started("all_receive", 2, "heartbeat_s: 0.1, lag_s: 1"), 2, 1, Names("every rank waits"));
}

TEST_P(ProcessGroups, AnErrorOfOneRankNamesIt) {
  expect_end(started("one_throws", 3, "", 1), 3, 2, StartsWith("error: rank 1 of 3: this rank has had enough"));
}

TEST_P(ProcessGroups, AnErrorOfRankZero) {
  expect_end(started("one_throws", 3, "", 0), 3, 2, StartsWith("error: this rank has had enough"));
}

TEST_P(ProcessGroups, AnErrorOfAllRanksIsSaidOnce) {
  expect_end(started("all_throw", 4), 4, 2, StartsWith("error: the same everywhere"));
}

// Also if rank 0, which usually reports errors, finds it late.
TEST_P(ProcessGroups, AnErrorThatSomeFindLaterIsSaidOnce) {
  expect_end(started("throw_apart", 3, "", 2), 3, 2, Names("same everywhere"));
}

TEST_P(ProcessGroups, RecipesThatDiffer) {
  Job job(started("disagree", 3, "", 2));
  expect_one_message(job, 2, Names("rank 2", "optimizer.lr", "0.1 there", "0.2 on rank 0"));
}

// Signals to the process that the user has started, as sent by a shell, Slurm or a terminal.
TEST_P(ProcessGroups, SignalsReachTheRanks) {
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

// Open MPI would print twenty lines of stack trace.
TEST_P(ProcessGroups, ACrashOfARankIsOneMessage) {
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

TEST_P(ProcessGroups, NobodyIsLeftWhenTheStarterIsKilled) {
  Job job(started("loop", 3));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  const auto ranks = job.ranks();
  kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.all_gone(ranks));
}

TEST_P(ProcessGroups, WithoutRanksOrALauncher) {
  Job job(started("moves", 0));
  expect_one_message(job, 2, Names("comm.ranks=4"));
}

TEST_P(ProcessGroups, ConfigsThatCannotWork) {
  Job short_limit(started("moves", 2, "timeout_s: 2"));
  expect_one_message(short_limit, 2, Names("3 heartbeats"));
  Job unknown(started("moves", 2, "reduce: fast"));
  expect_one_message(unknown, 2, Names("reduce"));
}

}  // namespace
}  // namespace lmx_test
