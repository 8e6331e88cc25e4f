#include "start.h"

#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "lmx/error.h"
#include "lmx/launch.h"
#include "mpirun.h"
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

std::vector<std::string> mpirun_options(const std::string& folder) {
  std::vector<std::string> options{"--oversubscribe", "--bind-to", "none", "-q", "--mca", "mpi_yield_when_idle", "1"};
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
  for (const std::string& word : lmx::processes::own_command_line()) command.push_back(word);
  run_mpirun(ranks, command);
}

}  // namespace lmx_mpi
