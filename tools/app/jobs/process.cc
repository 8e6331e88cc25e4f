#include "app/jobs/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "app/records/records.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/launch.h"

namespace lmx::app::jobs {
namespace {

volatile sig_atomic_t last_signal = 0, signals = 0, warned = 0;

extern "C" void note_signal(int signal) {
  last_signal = signal;
  signals = signals + 1;
}

extern "C" void note_warning(int) {
  if (warned == 0) note_signal(SIGTERM);
  warned = 1;
}

constexpr std::array kNoted{SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2};

cpu_set_t set_of(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return set;
}

// Returns this process's environment with the variables of `around`.
std::vector<std::string> environment_with(const Surroundings& around) {
  std::vector<std::string> all;
  for (char** e = environ; *e; ++e) {
    const std::string setting = *e, name = setting.substr(0, setting.find('='));
    if (std::none_of(around.environment.begin(), around.environment.end(),
                     [&](const auto& own) { return own.first == name; }))
      all.push_back(setting);
  }
  for (const auto& [name, value] : around.environment) all.push_back(name + "=" + value);
  return all;
}

// Returns pointers to the words, with the null at the end that exec requires.
std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

// The data that a child needs. Created before the fork, because memory cannot be allocated after it.
struct Image {
  char** argv;
  char** envp;
  const cpu_set_t* cores;  // null: all
  int log;                 // -1: the output of the parent
  pid_t parent;
  int at_parents_end;
  const sigset_t* mask;  // of the parent, before it blocked the signals that it notes
};

// Runs in the child, between fork and exec. A separate process group keeps the terminal's Ctrl-C from the child; the
// parent forwards it once. If the parent dies, the kernel sends the child a signal, because no other process would
// control its run.
[[noreturn]] void become(const Image& image) {
  for (const int number : kNoted) {
    struct sigaction present {};
    if (sigaction(number, nullptr, &present) == 0 && present.sa_handler != SIG_IGN) signal(number, SIG_DFL);
  }
  pthread_sigmask(SIG_SETMASK, image.mask, nullptr);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, image.at_parents_end);
  if (getppid() != image.parent) _exit(127);
  if (image.cores) sched_setaffinity(0, sizeof *image.cores, image.cores);
  for (const int stream : {1, 2})
    if (image.log >= 0) dup2(image.log, stream);
  const int none = open("/dev/null", O_RDONLY);
  dup2(none, 0);
  execve(image.argv[0], image.argv, image.envp);
  _exit(127);
}

constexpr const char* kLockFile = "/.lock";

std::string made(const std::string& directory) {
  make_folder(directory, "[jobs] ");
  return directory;
}

}  // namespace

Child::Child(const std::vector<std::string>& words, const std::string& log, const Surroundings& around) {
  std::vector<std::string> arguments = words, settings = environment_with(around);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(settings);
  const cpu_set_t cores = set_of(around.cores);
  const int file = log.empty() ? -1 : open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (!log.empty() && file < 0) throw RunError(str("[jobs] cannot write ", log, ": ", std::strerror(errno)));
  sigset_t mask;
  const Image image{const_cast<char**>(argv.data()),
                    const_cast<char**>(envp.data()),
                    around.cores.empty() ? nullptr : &cores,
                    file,
                    getpid(),
                    around.at_parents_end,
                    &mask};
  // A signal that the parent sends at once must not reach the handler of the parent in the child, where it would be
  // lost.
  sigset_t noted;
  sigemptyset(&noted);
  for (const int number : kNoted) sigaddset(&noted, number);
  pthread_sigmask(SIG_BLOCK, &noted, &mask);
  pid_ = fork();
  if (pid_ == 0) become(image);
  const int reason = errno;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  if (file >= 0) close(file);
  if (pid_ < 0) throw RunError(str("[jobs] cannot start ", words[0], ": ", std::strerror(reason)));
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Child::~Child() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<int> Child::poll() {
  int status = 0;
  const pid_t done = waitpid(pid_, &status, WNOHANG);
  if (done == 0 || (done < 0 && errno == EINTR)) return {};
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Child::send(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

DirectoryLock::DirectoryLock(const std::string& directory) : lock_(made(directory) + kLockFile, "[jobs] ") {
  if (!lock_.take_soon())
    throw UserError(str("[jobs] another process works in ", directory, "; give this one another --out"));
}

bool is_locked(const std::string& directory) {
  return FileLock::is_held(directory + kLockFile);
}

SignalNote::SignalNote() {
  last_signal = 0;
  signals = 0;
  warned = 0;
  for (size_t i = 0; i < kNoted.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = kNoted[i] == SIGINT || kNoted[i] == SIGTERM ? note_signal : note_warning;
    sigaction(kNoted[i], nullptr, &before_[i]);
    if (!stays_ignored(kNoted[i])) sigaction(kNoted[i], &action, nullptr);
  }
}

SignalNote::~SignalNote() {
  for (size_t i = 0; i < kNoted.size(); ++i) sigaction(kNoted[i], &before_[i], nullptr);
}

int SignalNote::received() {
  return last_signal;
}
int SignalNote::count() {
  return signals;
}

namespace {

void kill_children() {
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) kill(child, SIGKILL);
  }
}

}  // namespace

OrphanReaper::OrphanReaper() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void OrphanReaper::end_all(std::chrono::milliseconds patience, const std::function<bool()>& urgent) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + patience;
  for (pid_t ended = 0; (ended = waitpid(-1, nullptr, WNOHANG)) >= 0;) {
    if (ended > 0) continue;
    // Repeated, because a process that is killed may leave further ones behind.
    if (urgent() || Clock::now() > end) kill_children();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int64_t memory_kills() {
  static const std::vector<std::string> files = memory_counters(read_text("/proc/self/cgroup"));
  return kills_counted(files);
}

// A line is `hierarchy:controllers:path`: "0::/user.slice" in version 2, "4:memory:/user" in version 1. In a container
// the path may be the host's, while the mounted tree starts at the container's own group.
std::vector<std::string> memory_counters(const std::string& cgroups) {
  const std::string v1 = "/sys/fs/cgroup/memory", v2 = "/sys/fs/cgroup";
  std::vector<std::string> files;
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const std::string below = path == "/" ? "" : path;
    if (controllers.empty()) files.push_back(v2 + below + "/memory.events");
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      files.insert(files.begin(), v1 + below + "/memory.oom_control");
  }
  files.insert(files.end(), {v2 + "/memory.events", v1 + "/memory.oom_control", "/proc/vmstat"});
  return files;
}

int64_t kills_counted(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    std::istringstream words(read_text(path));
    std::string key;
    for (int64_t value = 0; words >> key >> value;)
      if (key == "oom_kill") return value;
  }
  return 0;
}

}  // namespace lmx::app::jobs
