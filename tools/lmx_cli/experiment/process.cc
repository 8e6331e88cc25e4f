#include "process.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

volatile sig_atomic_t last_signal = 0, signals = 0;

extern "C" void note_signal(int signal) {
  last_signal = signal;
  signals = signals + 1;
}

// In the child, between fork and exec. The terminal's Ctrl-C is for the parent, which tells its children once; when the
// parent dies they die too, for nobody else would take their runs over.
[[noreturn]] void become(char** argv, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  dup2(log, 1);
  dup2(log, 2);
  const int none = open("/dev/null", O_RDONLY);
  dup2(none, 0);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

Child::Child(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw lmx::RunError(lmx::str("[experiment] cannot write ", log, ": ", std::strerror(errno)));
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(argv.data(), file, parent);
  const int reason = errno;
  close(file);
  if (pid_ < 0) throw lmx::RunError(lmx::str("[experiment] cannot start ", words[0], ": ", std::strerror(reason)));
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

std::string own_program() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) throw lmx::RunError("[experiment] cannot find this program: " + error.message());
  return path;
}

DirectoryLock::DirectoryLock(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::string path = directory + "/.lock";
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw lmx::RunError(lmx::str("[experiment] cannot write in ", directory, ": ", std::strerror(errno)));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  close(descriptor_);
  if (reason == EWOULDBLOCK)
    throw lmx::UserError(lmx::str("[experiment] another process works in ", directory, "; give this one another --out"));
  throw lmx::RunError(lmx::str("[experiment] cannot lock ", path, ": ", std::strerror(reason)));
}

DirectoryLock::~DirectoryLock() {
  close(descriptor_);
}

SignalNote::SignalNote() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
  last_signal = 0;
  signals = 0;
}

SignalNote::~SignalNote() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
}

int SignalNote::received() {
  return last_signal;
}
int SignalNote::count() {
  return signals;
}

}  // namespace lmx_cli::experiments
