// The environments of the launchers that lmx supports, as tables of variables.
#include "lmx/launch.h"
#include "test.h"

#include <map>

namespace lmx {
namespace {

using namespace lmx_test;
using Env = std::map<std::string, std::string>;

Launch launch_of(const Env& env) {
  return detect_launch([&](const char* name) -> const char* {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Env& env) {
  return user_error([&] { launch_of(env); });
}

void expect(const Launch& l, Launcher launcher, int rank, int world, int local_rank, int local_size) {
  EXPECT_STREQ(name_of(l.launcher), name_of(launcher));
  EXPECT_EQ(l.rank, rank);
  EXPECT_EQ(l.world, world);
  EXPECT_EQ(l.local_rank, local_rank);
  EXPECT_EQ(l.local_size, local_size);
}

Env with(Env env, const Env& more) {
  for (const auto& [name, value] : more) env[name] = value;
  return env;
}

const Env kTorchrun{
    {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}, {"GROUP_RANK", "1"}};
const Env kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                   {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                   {"PMIX_RANK", "2"}};
const Env kMpich{{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Env kSlurm{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "8"}, {"SLURM_NTASKS", "9"},
                 {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "2"}, {"SLURM_TASKS_PER_NODE", "4(x2),1"}};

TEST(Launch, OneProcessWithoutALauncher) {
  expect(launch_of({}), Launcher::none, 0, 1, 0, 1);
  expect(launch_of({{"PATH", "/usr/bin"}, {"OMPI_COMM_WORLD_RANK", ""}}), Launcher::none, 0, 1, 0, 1);
  EXPECT_EQ(describe(Launch{}), "one process, started by no launcher");
}

TEST(Launch, EachLauncherHasItsWords) {
  expect(launch_of(kTorchrun), Launcher::torchrun, 5, 8, 1, 4);
  expect(launch_of(kOpenMpi), Launcher::open_mpi, 2, 4, 0, 2);
  expect(launch_of(kMpich), Launcher::mpich, 3, 6, 1, 2);
  expect(launch_of(kSlurm), Launcher::slurm, 8, 9, 0, 1);
  EXPECT_EQ(describe(launch_of(kOpenMpi)), "rank 2 of 4, started by mpirun (Open MPI)");
}

TEST(Launch, LocalSizeIsAtLeastWhatTheLocalRankSays) {
  expect(launch_of({{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}}), Launcher::mpich, 3, 6, 0, 1);
  expect(launch_of({{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "2"}}), Launcher::mpich, 3, 6, 2, 3);
}

// RANK and WORLD_SIZE are common names that other programs may set.
TEST(Launch, TorchrunIsThereWithAllFiveOrNotAtAll) {
  for (const auto& [name, value] : kTorchrun) {
    Env env = kTorchrun;
    env.erase(name);
    expect(launch_of(env), Launcher::none, 0, 1, 0, 1);
  }
}

TEST(Launch, FourVariablesStartARankOnAnyHost) {
  const Env variables{{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "h0"}, {"MASTER_PORT", "29400"}};
  expect(launch_of(variables), Launcher::variables, 1, 3, 0, 1);
  expect(launch_of(with(variables, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}})), Launcher::variables, 1, 3, 1, 2);
  expect(launch_of(with(kSlurm, variables)), Launcher::slurm, 8, 9, 0, 1);
  expect(launch_of(with(kOpenMpi, variables)), Launcher::open_mpi, 2, 4, 0, 2);
  for (const auto& [name, value] : variables) {
    Env env = variables;
    env.erase(name);
    expect(launch_of(env), Launcher::none, 0, 1, 0, 1);
  }
}

// lmx itself may run below any launcher, whose variables its ranks inherit.
TEST(Launch, RanksThatLmxHasStarted) {
  const Env own{{"LMX_RANK", "2"}, {"LMX_RANKS", "4"}};
  expect(launch_of(own), Launcher::lmx, 2, 4, 2, 4);
  for (const Env& outer : {kTorchrun, kOpenMpi, kSlurm}) expect(launch_of(with(outer, own)), Launcher::lmx, 2, 4, 2, 4);
}

TEST(Launch, TasksPerNodeOfSlurm) {
  const auto local_size = [](const char* tasks, const char* node) {
    return launch_of(with(kSlurm, {{"SLURM_TASKS_PER_NODE", tasks}, {"SLURM_NODEID", node}})).local_size;
  };
  EXPECT_EQ(local_size("4(x2),1", "0"), 4);
  EXPECT_EQ(local_size("4(x2),1", "1"), 4);
  EXPECT_EQ(local_size("4(x2),1", "2"), 1);
  EXPECT_EQ(local_size("4(x2),1", "3"), 1);  // no such node: only the local rank is known
  EXPECT_EQ(local_size("16", "0"), 16);
  EXPECT_EQ(local_size("2,3(x10),7", "10"), 3);
  EXPECT_EQ(local_size("2,3(x10),7", "11"), 7);
  for (const char* bad : {"", "x", "4(x2", "4(2)", "4(x)", ",", "4(x2)1"}) EXPECT_EQ(local_size(bad, "0"), 1) << bad;
}

TEST(Launch, TheStepOfSlurmCountsNotTheJob) {
  const Env env = with(kSlurm, {{"SLURM_NTASKS", "64"},
                                {"SLURM_STEP_NUM_TASKS", "9"},
                                {"SLURM_TASKS_PER_NODE", "32(x2)"},
                                {"SLURM_STEP_TASKS_PER_NODE", "3(x3)"}});
  expect(launch_of(env), Launcher::slurm, 8, 9, 0, 3);
}

TEST(Launch, ABatchScriptOrAShellOfSlurmIsOneProcess) {
  Env batch = kSlurm;
  batch.erase("SLURM_STEP_ID");
  expect(launch_of(batch), Launcher::none, 0, 1, 0, 1);
  expect(launch_of(with(batch, {{"SLURM_STEPID", "3"}})), Launcher::slurm, 8, 9, 0, 1);
  for (const char* name : {"bash", "interactive"})
    expect(launch_of(with(kSlurm, {{"SLURM_JOB_NAME", name}})), Launcher::none, 0, 1, 0, 1);
}

// salloc names its jobs "interactive", and the steps that are started from its shell inherit the name.
TEST(Launch, AStepOfAnInteractiveJobOfSlurm) {
  const Env shell = with(kSlurm, {{"SLURM_JOB_NAME", "interactive"}});
  expect(launch_of(with(shell, {{"PMIX_RANK", "8"}})), Launcher::slurm, 8, 9, 0, 1);
  expect(launch_of(with(shell, {{"PMIX_RANK", "2"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "3"}})),
         Launcher::slurm, 2, 3, 0, 1);
  // The shell itself may be a step of one process, which PMIx also numbers.
  expect(launch_of(with(shell, {{"PMIX_RANK", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})),
         Launcher::none, 0, 1, 0, 1);
  EXPECT_THAT(error_of(with(shell, {{"PMIX_RANK", "3"}})), Names("PMIX_RANK=3", "SLURM_PROCID=8"));
}

// mpirun and torchrun start one helper per node by srun. Slurm's numbers are then those of the helpers.
TEST(Launch, SlurmBelowAnotherLauncherIsNoContradiction) {
  expect(launch_of(with(kSlurm, kOpenMpi)), Launcher::open_mpi, 2, 4, 0, 2);
  expect(launch_of(with(kSlurm, kTorchrun)), Launcher::torchrun, 5, 8, 1, 4);
  expect(launch_of(with(kSlurm, kMpich)), Launcher::mpich, 3, 6, 1, 2);
}

TEST(Launch, EqualNumbersOfTwoLaunchersAreFine) {
  expect(launch_of(with(kOpenMpi, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})), Launcher::open_mpi, 2, 4, 0, 2);
}

TEST(Launch, ContradictionsAreErrorsThatNameBoth) {
  EXPECT_THAT(error_of(with(kOpenMpi, kTorchrun)), Names("RANK=5", "OMPI_COMM_WORLD_RANK=2", "contradict"));
  EXPECT_THAT(error_of(with(kOpenMpi, {{"PMI_RANK", "2"}, {"PMI_SIZE", "8"}})),
              Names("OMPI_COMM_WORLD_SIZE=4", "PMI_SIZE=8"));
  EXPECT_THAT(error_of(with(kTorchrun, kMpich)), Names("RANK=5", "PMI_RANK=3"));
}

TEST(Launch, ValuesThatMakeNoSense) {
  EXPECT_THAT(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "two"}})), Names("OMPI_COMM_WORLD_RANK='two'"));
  EXPECT_THAT(error_of(with(kMpich, {{"PMI_RANK", "-1"}})), Names("PMI_RANK='-1'"));
  EXPECT_THAT(error_of(with(kMpich, {{"PMI_SIZE", "6 "}})), Names("PMI_SIZE='6 '"));
  EXPECT_THAT(error_of(with(kMpich, {{"PMI_SIZE", "99999999999"}})), Names("PMI_SIZE"));
  EXPECT_THAT(error_of(with(kMpich, {{"PMI_RANK", "6"}})), Names("PMI_RANK=6", "PMI_SIZE=6"));
  EXPECT_THAT(error_of(with(kMpich, {{"MPI_LOCALRANKID", "2"}})), Names("MPI_LOCALRANKID=2"));
  EXPECT_THAT(error_of({{"PMI_RANK", "0"}}), Names("PMI_RANK", "PMI_SIZE"));
  EXPECT_THAT(error_of({{"OMPI_COMM_WORLD_SIZE", "4"}}), Names("OMPI_COMM_WORLD_RANK"));
}

TEST(Launch, ManyProcessesNeedAGroupOfProcesses) {
  EXPECT_NO_THROW(require_one_process(Launch{}, "self"));
  EXPECT_NO_THROW(require_one_process({Launcher::open_mpi, 0, 1, 0, 1}, "self"));
  const Launch several{Launcher::open_mpi, 1, 4, 1, 4};
  EXPECT_THAT(user_error([&] { require_one_process(several, "self"); }),
              Names("mpirun (Open MPI)", "4 processes", "comm.name=self", "comm=mpi"));
}

}  // namespace
}  // namespace lmx
