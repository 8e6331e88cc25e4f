#include "start.h"

#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"

namespace lmx_mpi {
namespace {

namespace fs = std::filesystem;
using lmx::str;
using lmx::UserError;

constexpr const char* kGuard = "LMX_STARTED_BY_MPIRUN";

// What handlers may touch: the process that mpirun runs in, and the last signal that was passed on to it.
volatile std::sig_atomic_t g_mpirun = 0, g_passed_on = 0;

extern "C" void pass_on(int signal) {
  g_passed_on = signal;
  const int number = signal == SIGINT ? SIGUSR1 : SIGUSR2;
  if (g_mpirun > 0) kill(static_cast<pid_t>(g_mpirun), number);
}

extern "C" void take_as_own(int signal) {
  raise(signal == SIGUSR1 ? SIGINT : SIGTERM);
}

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

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (words.empty() || error) throw lmx::RunError("[comm] this process's own command line cannot be read from /proc");
  words[0] = program.string();
  return words;
}

#ifdef OPEN_MPI
const std::vector<std::string> kPrograms{"mpirun.openmpi", "mpirun"};
constexpr const char* kPackage = "openmpi-bin";

std::vector<std::string> mpirun_options() {
  std::vector<std::string> options{"--oversubscribe", "--bind-to", "none", "-q", "--mca", "mpi_yield_when_idle", "1"};
  // Without these mpirun finds out after eight minutes that a host is cut off.
  for (const char* option : {"oob_tcp_keepalive_time=3", "oob_tcp_keepalive_intvl=1", "oob_tcp_keepalive_probes=4"}) {
    const std::string text = option;
    options.insert(options.end(), {"--mca", text.substr(0, text.find('=')), text.substr(text.find('=') + 1)});
  }
  // One host needs no network; in a Slurm allocation mpirun starts ranks on its hosts.
  if (!std::getenv("SLURM_JOB_ID"))
    options.insert(options.end(), {"--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo"});
  return options;
}
#else
const std::vector<std::string> kPrograms{"mpiexec.hydra", "mpirun"};
constexpr const char* kPackage = "mpich";
std::vector<std::string> mpirun_options() {
  return {};
}
#endif

void allow_root() {
  if (geteuid() != 0) return;
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

// In the child: becomes mpirun. Its own process group, so that a terminal's Ctrl-C reaches it through lmx alone; it
// ends the ranks when lmx is gone.
[[noreturn]] void become(const std::vector<std::string>& command) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  std::fprintf(stderr, "error: [comm] %s cannot be started: %s\n", words[0], std::strerror(errno));
  _exit(1);
}

// lmx's own exit codes pass. Any other is a failed run (137: a rank was killed, 205: a host is gone), or one that a
// signal ended before its ranks knew what to do with it.
int exit_code_of(int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (code == 0 || code == 2 || code == 128 + SIGINT || code == 128 + SIGTERM) return code;
  return g_passed_on == 0 ? 1 : 128 + (g_passed_on == SIGINT ? SIGINT : SIGTERM);
}

// Processes that `parent` has started and not waited for yet, and whether each has ended.
std::vector<std::pair<pid_t, bool>> children_of(pid_t parent) {
  std::vector<std::pair<pid_t, bool>> children;
  std::error_code error;
  for (const fs::directory_entry& thread : fs::directory_iterator(str("/proc/", parent, "/task"), error)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) {
      std::string stat;
      std::getline(std::ifstream(str("/proc/", child, "/stat")), stat, '\0');
      const size_t name_end = stat.rfind(')');
      children.emplace_back(child, name_end != std::string::npos && stat.compare(name_end, 3, ") Z") == 0);
    }
  }
  return children;
}

// Waits for mpirun. Open MPI's may wait for a lock of its own for ever after a rank has left without MPI_Finalize, its
// dead ranks around it; it is killed then.
int wait_for(pid_t mpirun) {
  constexpr int kPollMs = 20;
  constexpr int kPatienceMs = 5000;
  int status = 0, unattended_ms = 0;
  for (int since_look = 0; waitpid(mpirun, &status, WNOHANG) != mpirun; since_look += kPollMs) {
    usleep(kPollMs * 1000);
    if (since_look < 500) continue;
    const std::vector<std::pair<pid_t, bool>> children = children_of(mpirun);
    const bool dead = std::any_of(children.begin(), children.end(), [](const auto& c) { return c.second; });
    unattended_ms = dead ? unattended_ms + since_look : 0;
    since_look = 0;
    if (unattended_ms < kPatienceMs) continue;
    for (const auto& [child, ended] : children) kill(child, SIGKILL);
    kill(mpirun, SIGKILL);
  }
  return status;
}

int run_to_end(const std::vector<std::string>& command) {
  const pid_t child = fork();
  if (child < 0) throw lmx::RunError(str("[comm] mpirun cannot be started: ", std::strerror(errno)));
  if (child == 0) become(command);
  g_mpirun = child;
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  const int status = wait_for(child);
  g_mpirun = 0;
  return exit_code_of(status);
}

// A recipe of a paper's size asks for the ranks of a cluster.
void warn_of_crowd(int ranks) {
  constexpr int kRanksPerCore = 4;
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof own, &own) != 0) return;
  const int cores = CPU_COUNT(&own);
  if (ranks > kRanksPerCore * cores)
    lmx::log_warn(str(ranks, " processes on ", cores, cores == 1 ? " core" : " cores",
                      " of this host: start them over several by mpirun or srun, or train the same batches with fewer, "
                      "comm.ranks=",
                      cores));
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
  warn_of_crowd(ranks);
  setenv(kGuard, "1", 1);
  allow_root();
  std::vector<std::string> command{mpirun, "-n", std::to_string(ranks)};
  for (const std::string& option : mpirun_options()) command.push_back(option);
  for (const std::string& word : own_command_line()) command.push_back(word);
  throw lmx::EndProcess(run_to_end(command), str("[comm] ", ranks, " ranks have run"), true);
}

void ignore_broken_pipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

void accept_forwarded_signals() {
  struct sigaction action {};
  action.sa_handler = take_as_own;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR2, &action, nullptr);
}

}  // namespace lmx_mpi
