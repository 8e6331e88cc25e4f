// The group nccl: exchanges between the emulated devices of several processes, by the emulated NCCL.
#include "device.h"
#include "process/emulated.h"
#include "process_jobs.h"

namespace lmx_test {
namespace {

using lmx::str;
using Words = std::vector<std::string>;

class Nccl : public ProcessJobs {
 protected:
  Nccl() : ProcessJobs("nccl") {}
  void SetUp() override {
    if (lmx::load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
    if (const std::string why = why_no_job("gloo"); !why.empty()) GTEST_SKIP() << why;
  }
  // A job with four devices. `variables`: of its environment.
  Words on_devices(const std::string& scenario, int ranks, const std::string& more = "", const Words& variables = {},
                   int who = -1) const {
    Words words{"env", "LMX_NCCL_LIBRARY=" + emulated_nccl(), "LMX_EMULATED_DEVICES=4"};
    words.insert(words.end(), variables.begin(), variables.end());
    const Words job = started(scenario, ranks, more, who);
    words.insert(words.end(), job.begin(), job.end());
    return words;
  }
  Words with_error(const std::string& error, const std::string& more = "heartbeat_s: 0.1") const {
    return on_devices("device_moves", 3, more, {"LMX_EMULATED_NCCL_ERROR=" + error});
  }
  static void expect_message(const Words& command, int code, const testing::Matcher<std::string>& text) {
    Job job(command);
    expect_one_message(job, code, text);
  }
  static void expect_nccl(const Words& command) {
    EXPECT_THAT(expect_success(command), HasSubstr("NCCL between GPUs"));
  }

  // For tests that wait until the end of lag_s. The ranks have as much time to start.
  static constexpr const char* kBrief = "heartbeat_s: 0.1, timeout_s: 2, lag_s: 4";
};

TEST_F(Nccl, EveryMove) {
  for (const int ranks : {1, 2, 3, 4}) expect_nccl(on_devices("device_moves", ranks));
}

TEST_F(Nccl, EveryMoveWithMpi) {
  if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  expect_nccl(on_devices("device_moves", 3, "host: mpi"));
}

TEST_F(Nccl, NativeSums) {
  for (const int ranks : {1, 2, 3, 4}) expect_nccl(on_devices("device_native", ranks, "reduce: native"));
}

TEST_F(Nccl, FortyMegabytes) {
  expect_nccl(on_devices("device_large", 3));
}

TEST_F(Nccl, AKilledRankIsNamed) {
  for (const int who : {0, 2}) {
    Job job(on_devices("device_loop", 3));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    const std::string folder = meeting_folder(job.ranks().at(who));
    ASSERT_THAT(folder, HasSubstr("/dev/shm/lmx-gloo-"));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the ranks exchange data
    kill(job.ranks().at(who), SIGKILL);
    expect_one_message(job, 1, AllOf(Names(str("rank ", who, " of 3 on host ")), HasSubstr("killed")));
    EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
  }
}

TEST_F(Nccl, AStoppedRankIsNamed) {
  Job job(on_devices("device_loop", 3, "heartbeat_s: 0.1, timeout_s: 2"));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  kill(job.ranks().at(1), SIGSTOP);
  expect_one_message(job, 1, Names("rank 1 of 3 on host ", "has not answered for "));
}

// The others wait for their devices, not in a collective of the host. The exchanges before that must end in time on a
// machine that is busy, too.
TEST_F(Nccl, ARankThatDoesNotExchangeIsNamed) {
  expect_end(on_devices("device_one_lags", 3, "heartbeat_s: 0.1, timeout_s: 9, lag_s: 10", {}, 1), 3, 1,
             Names("rank 1 of 3 on host ", "lags", "in device_work"));
}

TEST_F(Nccl, ARankThatIsKilledInAnExchangeIsNamed) {
  expect_message(with_error("kill:1:7"), 1, Names("rank 1 of 3 on host ", "killed"));
}

TEST_F(Nccl, ARankThatIsKilledWhileNcclStartsIsNamed) {
  expect_message(with_error("kill_in_init:1"), 1, Names("rank 1 of 3 on host ", "killed"));
}

TEST_F(Nccl, ARankThatHangsWhileNcclStartsIsNamed) {
  expect_message(with_error("hang_in_init:1", kBrief), 1, Names("rank 1 of 3 on host ", "lags"));
}

TEST_F(Nccl, AStartThatDoesNotEnd) {
  expect_message(with_error("never_joins:1", kBrief), 1,
                 Names("NCCL", "3 ranks", "4 s (comm.lag_s)", "NCCL_DEBUG=INFO"));
}

TEST_F(Nccl, ErrorsThatNcclReports) {
  expect_message(with_error("ncclSend:1:5"), 1,
                 AllOf(StartsWith("error: rank 1 of 3: "), Names("ncclSend", "all_to_all", "internal error")));
  expect_message(with_error("async:1:5"), 1, AllOf(StartsWith("error: rank 1 of 3: "), Names("error of the network")));
}

TEST_F(Nccl, ALibraryThatCannotBeUsed) {
  expect_message(on_devices("device_moves", 3, "", {"LMX_NCCL_LIBRARY=" + missing_path()}), 2,
                 Names(missing_path(), "nvidia-nccl-cu13", "LMX_NCCL_LIBRARY"));
  expect_message(with_error("old_version"), 2, Names("is NCCL 2.13.6", "install NCCL 2.14"));
}

TEST_F(Nccl, TwoRanksWithOneDevice) {
  expect_message(on_devices("device_moves", 3, "", {"LMX_EMULATED_DEVICES=2"}), 2,
                 Names("ranks 0 and 2 of 3", "cuda:0", "comm.name=virtual"));
}

TEST_F(Nccl, ARankOnTheCpu) {
  expect_message(on_devices("devices_differ", 3, "", {}, 1), 2, Names("rank 1 of 3", "on the CPU", "device=cuda"));
}

TEST_F(Nccl, ASettingOfAnotherHost) {
  expect_message(on_devices("device_moves", 3, "host: mpi, interface: eth0"), 2,
                 Names("interface", "host=gloo", "mpi"));
}

// Without a device it is the group of the host.
class NcclHost : public ProcessJobs, public testing::WithParamInterface<int> {
 protected:
  NcclHost() : ProcessJobs("nccl") {}
  void SetUp() override {
    if (const std::string why = why_no_job("gloo"); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(NcclHost, EveryMove) {
  expect_success(started("moves", GetParam()));
  expect_success(started("native", GetParam(), "reduce: native"));
}
INSTANTIATE_TEST_SUITE_P(All, NcclHost, testing::Values(1, 3, 4));

}  // namespace
}  // namespace lmx_test
