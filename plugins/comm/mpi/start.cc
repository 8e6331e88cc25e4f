#include "start.h"

#include <mpi.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include "lmx/error.h"
#include "lmx/launch.h"
#include "processes/local_job.h"

namespace lmx_mpi {
namespace {

namespace fs = std::filesystem;
using lmx::str;
using lmx::UserError;

constexpr const char* kGuard = "LMX_STARTED_BY_MPIRUN";

std::string find_program(const std::vector<std::string>& names) {
  const char* path = std::getenv("PATH");
  for (const std::string& name : names) {
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
      const fs::path file = fs::path(folder.empty() ? "." : folder) / name;
      if (access(file.c_str(), X_OK) == 0 && !fs::is_directory(file)) return file.string();
    }
  }
  return "";
}

#ifdef OPEN_MPI
const std::vector<std::string> kPrograms{"mpirun.openmpi", "mpirun"};
constexpr const char* kPackage = "openmpi-bin";

// The version of the library that this process has loaded, "Open MPI v5.0.7, ..."; mpirun is of the same one.
int major_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0, version = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return 0;
  return std::sscanf(text, "Open MPI v%d", &version) == 1 ? version : 0;
}

std::vector<std::string> mpirun_options(const std::string& folder) {
  std::vector<std::string> options{"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"};
  // From version 5 on, mpirun is PRRTE, which refuses -q and has no separate network (oob).
  if (major_version() >= 5) {
    if (std::getenv("SLURM_JOB_ID")) return options;
    options.insert(options.end(), {"--mca", "btl_tcp_if_include", "lo"});
    if (!folder.empty())
      options.insert(options.end(),
                     {"--mca", "btl_sm_backing_directory", folder, "--prtemca", "prte_tmpdir_base", folder});
    return options;
  }
  options.push_back("-q");
  // Without these options mpirun needs eight minutes to detect that a host is disconnected.
  for (const char* option : {"oob_tcp_keepalive_time=3", "oob_tcp_keepalive_intvl=1", "oob_tcp_keepalive_probes=4"}) {
    const std::string text = option;
    options.insert(options.end(), {"--mca", text.substr(0, text.find('=')), text.substr(text.find('=') + 1)});
  }
  // In a Slurm allocation mpirun starts ranks on the hosts of the allocation.
  if (std::getenv("SLURM_JOB_ID")) return options;
  // A single host needs no network. All files that a killed mpirun leaves behind are in one folder.
  options.insert(options.end(), {"--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo"});
  if (folder.empty()) return options;
  for (const char* place : {"btl_vader_backing_directory", "orte_tmpdir_base"})
    if (!std::getenv((std::string("OMPI_MCA_") + place).c_str()))
      options.insert(options.end(), {"--mca", place, folder});
  return options;
}
#else
const std::vector<std::string> kPrograms{"mpiexec.hydra", "mpirun"};
constexpr const char* kPackage = "mpich";
std::vector<std::string> mpirun_options(const std::string&) {
  return {};
}
#endif

void allow_root() {
  if (geteuid() != 0) return;
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

}  // namespace

void start_ranks(int ranks, const std::string& path) {
  if (std::getenv(kGuard))
    throw UserError(str("[", path, "] lmx has started ", ranks,
                        " ranks by mpirun, and this one has no rank: the mpirun on "
                        "PATH belongs to another MPI than this build of lmx"));
  const std::string mpirun = find_program(kPrograms);
  if (mpirun.empty())
    throw UserError(str("[", path,
                        "] comm.name=mpi starts its ranks by mpirun, which is not on PATH; install it (Debian: "
                        "apt-get install ",
                        kPackage, "), or start lmx by srun"));
  lmx::processes::warn_of_crowd(ranks, "mpirun or srun");
  setenv(kGuard, "1", 1);
  allow_root();
  const lmx::processes::JobFolder folder("lmx-mpi-");
  std::vector<std::string> command{mpirun, "-n", std::to_string(ranks)};
  for (const std::string& option : mpirun_options(folder.path())) command.push_back(option);
  for (const std::string& word : lmx::own_command_line()) command.push_back(word);
  run_mpirun(ranks, command);
}

namespace {

using lmx::processes::Relay;

struct Ending {
  int status = 0;     // of mpirun, from waitpid()
  bool hung = false;  // its ranks had ended, but mpirun had not
};

// Seconds that mpirun may continue to run after a rank has ended.
constexpr int kPatienceS = 5;

// After a rank has left without MPI_Finalize, Open MPI's mpirun may wait for one of its locks forever. An mpirun that
// was stopped waits for SIGCONT. In both cases it is killed.
Ending wait_for(pid_t mpirun, Relay& messages) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPollMs = 20;
  constexpr auto kLookEvery = std::chrono::milliseconds(500);
  Ending end;
  auto looked = Clock::now(), attended = looked;  // last time without an ended rank
  while (waitpid(mpirun, &end.status, WNOHANG) != mpirun) {
    messages.relay(kPollMs);
    if (Clock::now() - looked < kLookEvery) continue;
    looked = Clock::now();
    const std::vector<std::pair<pid_t, bool>> children = lmx::processes::children_of(mpirun);
    const bool dead = std::any_of(children.begin(), children.end(), [](const auto& c) { return c.second; });
    if (!dead) attended = looked;
    if (looked - attended < std::chrono::seconds(kPatienceS)) continue;
    end.hung = true;
    for (const auto& [child, ended] : children) kill(child, SIGKILL);
    kill(mpirun, SIGKILL);
  }
  messages.drain();
  return end;
}

std::string describe(const Ending& end) {
  if (end.hung)
    return str("[comm] mpirun did not end, though its ranks had ended ", kPatienceS,
               " s before, and was killed (was it stopped?)");
  if (WIFSIGNALED(end.status))
    return str("[comm] mpirun was ended by ", lmx::processes::signal_text(WTERMSIG(end.status)),
               ", and its ranks with it");
  const int code = WEXITSTATUS(end.status);
  if (code > 128 && code < 128 + NSIG)
    return str("[comm] a rank was ended by ", lmx::processes::signal_text(code - 128),
               " and could not print why (mpirun's exit code ", code, ")", lmx::processes::memory_hint(code - 128));
  return str("[comm] mpirun ended with exit code ", code, ", and no rank has printed an error");
}

}  // namespace

void run_mpirun(int ranks, const std::vector<std::string>& command) {
  Relay messages;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  lmx::processes::ForwardedSignals signals;
  const pid_t child = lmx::processes::start_child(command, messages);
  messages.close_writer();
  signals.to({child});
  const Ending end = wait_for(child, messages);
  signals.to({});
  // The ranks of an mpirun that was killed are children of this process, which is their reaper.
  lmx::processes::end_children();
  lmx::processes::end_job(ranks, end.status, messages, [&] { return describe(end); });
}

}  // namespace lmx_mpi
