// Tests that apply to the MPI group alone: mpirun, its failures and other launchers.
#include <algorithm>
#include <memory>

#include "app/jobs/launcher.h"
#include "process_jobs.h"

namespace lmx_test {
namespace {

using lmx::str;

class Mpi : public ProcessJobs {
 protected:
  Mpi() : ProcessJobs("mpi") {}

  // Started by the user's mpirun.
  static std::vector<std::string> below_mpirun(int processes, std::vector<std::string> command) {
    std::vector<std::string> words{"mpirun", "-n", std::to_string(processes), "--oversubscribe", "--bind-to",
                                   "none",   "-q"};
    words.insert(words.end(), {"--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"});
    if (geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> found;
    std::ifstream list(str("/proc/", parent, "/task/", parent, "/children"));
    for (pid_t child = 0; list >> child;) found.push_back(child);
    return found;
  }
};

TEST_F(Mpi, BelowMpirun) {
  Job job(below_mpirun(2, started("moves", 0)));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("done: 2 processes (MPI, started by mpirun (Open MPI))"));
}

TEST_F(Mpi, AnotherNumberOfProcessesThanTheRecipeSays) {
  Job job(below_mpirun(2, started("moves", 3)));
  expect_one_message(job, 2, Names("ranks is 3", "started 2"));
}

// mpirun has started another program in place of a rank, which therefore never joins.
TEST_F(Mpi, ARankThatNeverJoins) {
  std::vector<std::string> words = below_mpirun(2, started("moves", 0, "heartbeat_s: 0.5, timeout_s: 3, lag_s: 1"));
  words.insert(words.end(), {":", "-n", "1", "sleep", "50"});
  Job job(words);
  expect_one_message(job, 1, Names("rank 0 of 3", "3 s", "comm.lag_s"));
}

// mpirun itself is killed: its ranks cannot print, and no other process removes their files in shared memory.
TEST_F(Mpi, AKilledMpirunIsToldOf) {
  Job job(started("loop", 3));
  ASSERT_TRUE(job.wait_for_ranks(3)) << job.err();
  const std::vector<pid_t> children = children_of(job.pid());
  ASSERT_EQ(children.size(), 1u);
  // The name of the job's folder in shared memory is part of mpirun's command line; other jobs run at the same time.
  std::string words = read_file(str("/proc/", children[0], "/cmdline"));
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
  const TempFolder folder;
  const auto ends = [&](const std::string& script) {
    for (const char* name : {"mpirun", "mpirun.openmpi", "mpiexec.hydra"}) {
      std::filesystem::permissions(folder.write(name, "#!/bin/sh\n" + script + "\n"),
                                   std::filesystem::perms::owner_all);
    }
    auto job = std::make_unique<Job>(std::vector<std::string>{
        "env", "PATH=" + folder.root().string() + ":/bin:/usr/bin", rank_program(), "moves", config(2, "")});
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
}

TEST_F(Mpi, WithoutMpirun) {
  Job job({"env", "PATH=" + missing_path(), rank_program(), "moves", config(2, "")});
  expect_one_message(job, 2, Names("mpirun", "PATH", "openmpi-bin"));
}

// With an mpirun that starts nothing.
TEST_F(Mpi, MoreRanksThanAHostIsFor) {
  const TempFolder folder;
  for (const char* name : {"mpirun", "mpirun.openmpi", "mpiexec.hydra"})
    std::filesystem::create_symlink("/bin/true", folder.path(name));
  const std::string path = "PATH=" + folder.root().string();
  const int crowd = 4 * static_cast<int>(lmx::app::jobs::own_core_count()) + 1;
  Job many({"env", path, rank_program(), "moves", config(crowd, "")});
  EXPECT_EQ(many.wait(), 0);
  EXPECT_THAT(many.err(), Names(str(crowd, " processes on "), "comm.ranks="));
  Job few({"env", path, rank_program(), "moves", config(2, "")});
  EXPECT_EQ(few.wait(), 0);
  EXPECT_EQ(few.err(), "");
}

TEST_F(Mpi, AForeignMpirunDoesNotStartRanksForEver) {
  Job job({"env", "LMX_STARTED_BY_MPIRUN=1", rank_program(), "moves", config(2, "")});
  expect_one_message(job, 2, Names("another MPI"));
}

TEST_F(Mpi, ALauncherThatIsNotMpis) {
  Job job({"env", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", rank_program(),
           "moves", config(2, "")});
  expect_one_message(job, 2, Names("rank 1 of 2: [comm] name=mpi:", "torchrun"));
}

TEST_F(Mpi, ALauncherOfAnotherMpi) {
  Job job({"env", "PMI_RANK=0", "PMI_SIZE=2", rank_program(), "moves", config(2, "")});
  expect_one_message(job, 2, Names("2 processes", "MPI sees 1", "--mpi=pmix"));
}

}  // namespace
}  // namespace lmx_test
