// Sets the environment of a test program and of every process that it starts. The shell, the terminal, the language,
// the time zone and the batch job in which somebody runs the tests must not change a result.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "paths.h"

namespace lmx_test {
namespace {

// Settings that choose what is tested, and where.
constexpr std::string_view kKept[] = {
    "LMX_CONFIG_CASES=",   "LMX_CUDA_LIBRARY=",    "LMX_CUDA_POISON=",   "LMX_DATA_DIR=",
    "LMX_EMULATED_ORDER=", "LMX_EMULATED_MEMORY=", "LMX_ERRORS_UPDATE=", "LMX_GOLDEN_",
    "LMX_NCCL_LIBRARY=",   "LMX_PYTHON=",          "LMX_TEST_BUILD=",    "LMX_TEST_DEVICE="};

// The beginnings of those that are removed: other settings of lmx, the numbers that a launcher gives to a rank, and
// what shells, terminals and curl obey.
constexpr std::string_view kRemoved[] = {
    "LMX_",        "RANK=",         "WORLD_SIZE=",   "LOCAL_RANK=",      "LOCAL_WORLD_SIZE=",
    "GROUP_RANK=", "MASTER_",       "TORCHELASTIC_", "OMPI_COMM_WORLD_", "MPI_LOCAL",
    "PMI_",        "PMIX_",         "SLURM_",        "COLUMNS=",         "NO_COLOR=",
    "BASH_ENV=",   "ENV=",          "CDPATH=",       "http_proxy=",      "all_proxy=",
    "ALL_PROXY=",  "SSL_CERT_FILE="};

void set_environment() {
  const auto begins = [](const std::string& setting, const auto& names) {
    return std::any_of(std::begin(names), std::end(names), [&](std::string_view n) { return setting.starts_with(n); });
  };
  std::vector<std::string> removed;
  for (char** e = environ; *e; ++e)
    if (const std::string setting = *e; begins(setting, kRemoved) && !begins(setting, kKept))
      removed.push_back(setting.substr(0, setting.find('=')));
  for (const std::string& name : removed) unsetenv(name.c_str());
  setenv("LC_ALL", "C.UTF-8", 1);
  setenv("TERM", "dumb", 1);
  setenv("TZ", "UTC0", 1);
  // No test reads or leaves something in the user's own folders: one that prepares data names its folder.
  setenv("LMX_CACHE_DIR", missing_path().c_str(), 1);
  setenv("XDG_DATA_HOME", missing_path().c_str(), 1);
  umask(022);
  // A shell lets its background processes ignore SIGINT, and nohup lets them ignore SIGHUP.
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD})
    signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[maybe_unused]] const bool g_set = (set_environment(), true);

}  // namespace
}  // namespace lmx_test
