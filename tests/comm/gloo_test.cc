// Tests that apply to the Gloo group alone: how ranks that lmx has not started meet, and the job's secret.
#include <sched.h>

#include <cerrno>
#include <memory>
#include <thread>

#include "loopback.h"
#include "process_jobs.h"
#include "start.h"

namespace lmx_test {
namespace {

using lmx::str;

TEST_F(Gloo, RanksThatAreStartedByVariables) {
  const FreePort port;
  std::vector<std::unique_ptr<Job>> jobs;
  for (const int r : {2, 0, 1}) jobs.push_back(rank(r, 3, "moves", meeting(port)));
  for (const auto& job : jobs) EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_THAT(jobs[1]->out(), HasSubstr("done: 3 processes (Gloo, started by the variables RANK and WORLD_SIZE)"));
}

// The agent of torchrun listens on MASTER_PORT itself, rank 0 on the next port.
TEST_F(Gloo, RanksBelowTorchrun) {
  const FreePort agent(2);
  std::vector<std::unique_ptr<Job>> jobs;
  for (const int r : {0, 1}) {
    std::vector<std::string> more = meeting(agent);
    for (const std::string& variable : {str("LOCAL_RANK=", r), str("LOCAL_WORLD_SIZE=2"), str("GROUP_RANK=0"),
                                        str("TORCHELASTIC_USE_AGENT_STORE=True")})
      more.push_back(variable);
    jobs.push_back(rank(r, 2, "moves", more));
  }
  for (const auto& job : jobs) EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_THAT(jobs[0]->out(), HasSubstr("started by torchrun"));
}

TEST_F(Gloo, ARankWithAnotherSecretIsRefused) {
  const FreePort port;
  const auto stranger = rank(1, 2, "moves", meeting(port, "fedcba9876543210")),
             zero = rank(0, 2, "moves", meeting(port), "heartbeat_s: 0.5, timeout_s: 3, lag_s: 3");
  EXPECT_EQ(stranger->wait(), 2);
  EXPECT_THAT(stranger->err(), Names("rank 1 of 2", "127.0.0.1", str("port ", port.number()), "LMX_JOB_SECRET"));
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_THAT(zero->err(), Names("127.0.0.1", "secret"));
  EXPECT_THAT(zero->err(), Names("rank 0 of 2", "3 s", "comm.lag_s"));
}

// A program that is no rank of lmx connects, sends something and stays. The ranks meet nevertheless.
TEST_F(Gloo, AStrangerDoesNotDisturbTheMeeting) {
  const FreePort port;
  const auto zero = rank(0, 2, "moves", meeting(port));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port.number()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int socket = -1;
  for (int tries = 0; tries < 3000; ++tries) {
    socket = ::socket(AF_INET, SOCK_STREAM, 0);
    if (connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) break;
    close(socket);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::string noise(64, 'x');
  ASSERT_EQ(send(socket, noise.data(), noise.size(), 0), 64);
  const auto one = rank(1, 2, "moves", meeting(port));
  EXPECT_EQ(zero->wait(), 0) << zero->err();
  EXPECT_EQ(one->wait(), 0) << one->err();
  EXPECT_THAT(zero->err(), Names("127.0.0.1", "secret", "refused"));
  close(socket);
}

TEST_F(Gloo, AMissingRankIsNamed) {
  const FreePort port;
  const std::string config = "heartbeat_s: 0.3, timeout_s: 1, lag_s: 4";
  const auto zero = rank(0, 3, "moves", meeting(port), config), two = rank(2, 3, "moves", meeting(port), config);
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_THAT(zero->err(), Names("warning:", "these ranks have not come yet: 1", "rank 0 of 3", "4 s", "comm.lag_s"));
  const auto alone = rank(1, 2, "moves", meeting(port), config);
  EXPECT_EQ(alone->wait(), 1);
  EXPECT_THAT(alone->err(), Names("these ranks have not come yet: 0", "rank 1 of 2"));
}

// The library of messages cannot be interrupted, and there is nothing to save yet.
TEST_F(Gloo, ASignalEndsAMeetingAtOnce) {
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}, std::pair{SIGUSR2, 143}}) {
    const FreePort port;
    const auto zero = rank(0, 2, "moves", meeting(port), "heartbeat_s: 0.3, timeout_s: 1, lag_s: 100000");
    while (zero->err().find("have not come yet") == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kill(zero->pid(), signal);
    EXPECT_EQ(zero->wait(), code);
    EXPECT_THAT(zero->err(), HasSubstr("while the ranks were meeting"));
  }
}

TEST_F(Gloo, AMeetingThatIsNotDescribed) {
  const auto no_address = rank(
      0, 2, "moves", {"LMX_JOB_SECRET=" + std::string(kSecret), "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0"});
  expect_one_message(*no_address, 2, Names("MASTER_ADDR", "MASTER_PORT", "torchrun"));
  const FreePort port;
  const auto no_secret = rank(0, 2, "moves", meeting(port, "short"));
  expect_one_message(*no_secret, 2, Names("LMX_JOB_SECRET", "5 characters", "16"));
  const auto no_port =
      rank(0, 2, "moves", {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=http", "LMX_JOB_SECRET=" + std::string(kSecret)});
  expect_one_message(*no_port, 2, Names("MASTER_PORT", "http"));
  const auto elsewhere =
      rank(0, 2, "moves", {"MASTER_ADDR=192.0.2.1", "MASTER_PORT=29400", "LMX_JOB_SECRET=" + std::string(kSecret)});
  expect_one_message(*elsewhere, 2, Names("192.0.2.1", "29400", "rank 0"));
  const auto no_interface = rank(0, 1, "moves", meeting(port), "interface: nowhere9");
  expect_one_message(*no_interface, 2, Names("comm.interface", "nowhere9"));
}

TEST_F(Gloo, LongMovesOverTcp) {
  for (const int ranks : {2, 4}) expect_success(started("long_moves", ranks, "direct: false"));
}

// Some or all ranks cannot read the memory of the others any more, so that the others send the data. The errors are
// those of a container's rules, of the memory of a device's driver, and of another emulation of the kernel.
TEST_F(Gloo, ReadsThatTheKernelRefuses) {
  std::vector<std::unique_ptr<Job>> jobs;
  for (const auto& [error, who] : {std::pair{EPERM, -1}, {EFAULT, 1}, {ENOSYS, 2}}) {
    std::vector<std::string> words = started("refused_moves", 3, "", who);
    words.insert(words.begin(), {"env", str("LMX_TEST_READ_ERROR=", error)});
    jobs.push_back(std::make_unique<Job>(words));
  }
  for (const auto& job : jobs) {
    EXPECT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(job->err(), "");
  }
}

// The kernel reports to rank 1 that the process of rank 2 has ended, which it has not. Over TCP rank 1 does not ask.
TEST_F(Gloo, AProcessThatTheKernelDoesNotFind) {
  if (!reads_allowed()) GTEST_SKIP() << "a process may not read the memory of its child here";
  const auto command = [&](const std::string& more) {
    std::vector<std::string> words = started("refused_moves", 3, "heartbeat_s: 0.1, " + more, 1);
    words.insert(words.begin(), {"env", str("LMX_TEST_READ_ERROR=", ESRCH)});
    return words;
  };
  Job tcp(command("direct: false")), direct(command("timeout_s: 1"));
  EXPECT_EQ(tcp.wait(), 0) << tcp.err();
  expect_one_message(direct, 1, Names("rank 1 of 3", "connection to rank 2", "process has ended"));
}

// At moments before a rank announces a tensor, while another one reads it, and while it waits for the answer.
TEST_F(Gloo, ARankThatIsKilledBetweenLongMessages) {
  for (int i = 0; i < 6; ++i) {
    Job job(started("long_loop", 3));
    ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(37 * i));
    const int who = i % 3;
    kill(job.ranks().at(who), SIGKILL);
    expect_one_message(job, 1, Names(str("rank ", who, " of 3 on host "), "killed"));
  }
}

// The thread that it interrupted could hold a lock for which Gloo's thread for events then asks again and again.
TEST_F(Gloo, TheThreadForEventsInterruptsNoOther) {
  if (sched_getscheduler(0) != SCHED_OTHER) GTEST_SKIP() << "the tests run under another policy of the scheduler";
  Job job(started("until_signal", 2));
  ASSERT_TRUE(job.wait_for_ranks(2)) << job.err();
  for (const auto& [rank, pid] : job.ranks()) {
    EXPECT_EQ(sched_getscheduler(pid), SCHED_OTHER) << rank;
    int patient = 0;
    for (const auto& thread : std::filesystem::directory_iterator(str("/proc/", pid, "/task")))
      patient += sched_getscheduler(std::stoi(thread.path().filename())) == SCHED_BATCH;
    EXPECT_EQ(patient, 1) << rank;
  }
  kill(job.ranks().at(0), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.err();
}

TEST_F(Gloo, AnotherNumberOfProcessesThanTheRecipeSays) {
  const FreePort port;
  std::vector<std::string> words{"env", "RANK=0", "WORLD_SIZE=2"};
  for (const std::string& variable : meeting(port)) words.push_back(variable);
  words.insert(words.end(), {rank_program(), "moves", config(3, "")});
  Job job(words);
  expect_one_message(job, 2, Names("ranks is 3", "started 2"));
}

// No launcher warns the others, and the ranks could be on several hosts.
TEST_F(Gloo, AKilledRankThatLmxHasNotStarted) {
  const FreePort port;
  std::vector<std::unique_ptr<Job>> jobs;
  for (int r = 0; r < 3; ++r) jobs.push_back(rank(r, 3, "loop", meeting(port)));
  for (const auto& job : jobs) ASSERT_TRUE(job->wait_for_ranks(1)) << job->err();
  kill(jobs[2]->ranks().at(2), SIGKILL);
  std::string all;
  for (const int r : {0, 1}) {
    EXPECT_EQ(jobs[static_cast<size_t>(r)]->wait(), 1);
    all += jobs[static_cast<size_t>(r)]->err();
  }
  EXPECT_THAT(all, Names("rank 2 of 3 on host "));
  EXPECT_EQ(errors_in(all), 1u) << all;
}

// A rank is killed before the ranks have met, so that no other rank can notice it.
TEST_F(Gloo, ARankThatIsKilledAtTheStart) {
  Job job({"env", "LMX_TEST_KILL_AT_START=1", rank_program(), "moves", config(3, "lag_s: 30")});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), Names("rank 1", "SIGKILL"));
  EXPECT_EQ(errors_in(job.err()), 1u) << job.err();
}

// A rank has lost a connection that is being made, although no rank has ended.
TEST_F(Gloo, ARankWhoseConnectionIsLostAtTheStart) {
  Job job(
      {"env", str("LMX_TEST_EXIT_AT_START=", lmx_gloo::kDisturbed), rank_program(), "moves", config(3, "lag_s: 30")});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), Names("rank 1", "another program of this host", "docs/cluster.md"));
  EXPECT_EQ(errors_in(job.err()), 1u) << job.err();
}

// The ranks meet without the filter of their sockets, and each says so once.
TEST_F(Gloo, PacketFiltersThatTheKernelRefuses) {
  std::vector<std::string> words = started("long_moves", 3, "direct: false");
  words.insert(words.begin(), {"env", str("LMX_TEST_FILTER_ERROR=", EPERM)});
  Job job(words);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(lines_of_lmx(job.err()), 3) << job.err();
  EXPECT_THAT(job.err(), Names("warning:", "packet filter", "Operation not permitted"));
}

// The folder in which the ranks meet is removed as soon as they have met, so nothing remains however the job ends.
TEST_F(Gloo, NothingIsLeftInSharedMemory) {
  Job job(started("loop", 2));
  ASSERT_TRUE(job.wait_for_ranks(2)) << job.err();
  const auto ranks = job.ranks();
  const std::string folder = meeting_folder(ranks.at(0));
  ASSERT_THAT(folder, HasSubstr("/dev/shm/lmx-gloo-"));
  EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
  kill(job.pid(), SIGTERM);
  job.wait();
  EXPECT_TRUE(job.all_gone(ranks));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

}  // namespace
}  // namespace lmx_test
