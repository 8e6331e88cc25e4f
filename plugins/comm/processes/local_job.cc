#include "local_job.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"

namespace lmx::processes {
namespace {

void pass(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a closed terminal
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

Relay::Relay() {
  if (pipe2(ends_, O_CLOEXEC) != 0) throw RunError(str("[comm] the ranks cannot be started: ", std::strerror(errno)));
  fcntl(ends_[0], F_SETFL, O_NONBLOCK);
}

Relay::~Relay() {
  close_writer();
  close(ends_[0]);
}

void Relay::close_writer() {
  if (ends_[1] >= 0) close(ends_[1]);
  ends_[1] = -1;
}

void Relay::relay(int milliseconds) {
  pollfd event{open_ ? ends_[0] : -1, POLLIN, 0};
  if (poll(&event, 1, milliseconds) > 0) drain();
}

void Relay::drain() {
  char text[4096];
  for (ssize_t n = 0; (n = read(ends_[0], text, sizeof text)) != -1 || errno == EINTR;) {
    if (n == 0) open_ = false;
    if (n <= 0) break;
    look({text, static_cast<size_t>(n)});
    pass({text, static_cast<size_t>(n)});
  }
}

void Relay::look(std::string_view text) {
  constexpr std::string_view kError = "error: ";
  for (const char c : text) {
    if (c == '\n') {
      column_ = 0;
    } else if (column_ < kError.size() && c == kError[column_]) {
      has_error_ |= ++column_ == kError.size();
    } else {
      column_ = kError.size() + 1;
    }
  }
}

namespace {

namespace fs = std::filesystem;

// Signal handlers use only these variables: the children to which signals are forwarded, and the last signal that was
// forwarded.
constexpr int kMostChildren = 4096;
volatile pid_t g_children[kMostChildren];
volatile std::sig_atomic_t g_count = 0, g_passed_on = 0;

// The ranks handle SIGUSR1 like SIGINT and SIGUSR2 like SIGTERM, of which a second one ends them at once. Only a second
// SIGINT or SIGTERM means that: SIGPIPE comes with every line that has no reader.
extern "C" void pass_on(int signal) {
  const bool again = g_passed_on != 0;
  if (again && signal != SIGINT && signal != SIGTERM) return;
  g_passed_on = signal;
  const int number = signal == SIGINT ? SIGUSR1 : SIGUSR2;
  for (int i = 0; i < g_count; ++i) kill(g_children[i], number);
}

volatile std::sig_atomic_t g_speaks = 0;
constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// A signal handler may call write() and _exit().
extern "C" void end_at(int signal) {
  const bool interrupted = signal == SIGINT || signal == SIGUSR1;
  const std::string_view text = interrupted
                                    ? "error: [comm] interrupted while the ranks were meeting; nothing was trained\n"
                                    : "error: [comm] terminated while the ranks were meeting; nothing was trained\n";
  if (g_speaks) static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  _exit(128 + (interrupted ? SIGINT : SIGTERM));
}

extern "C" void take_as_own(int signal) {
  raise(signal == SIGUSR1 ? SIGINT : SIGTERM);
}

// In the child: executes the command. A separate process group ensures that a terminal's Ctrl-C reaches it through lmx
// only. When lmx ends, the child gets SIGTERM.
[[noreturn]] void become(const std::vector<std::string>& command, int messages) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(messages, STDERR_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  std::fprintf(stderr, "error: [comm] %s cannot be started: %s\n", words[0], std::strerror(errno));
  _exit(1);
}

constexpr const char* kShared = "/dev/shm";

// If lmx was killed, its children have emptied the folder without removing it. Folders of starting jobs are younger
// than a minute.
void remove_empty_folders(const std::string& prefix) {
  std::error_code error;
  const auto old = fs::file_time_type::clock::now() - std::chrono::minutes(1);
  for (const fs::directory_entry& entry : fs::directory_iterator(kShared, error))
    if (entry.path().filename().string().starts_with(prefix) && entry.last_write_time(error) < old)
      rmdir(entry.path().c_str());  // fails if it is not empty, or another user's
}

// The exit code of lmx for a child's status; see end_job().
int exit_code_of(int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (code == 0 || code == 2 || code == 128 + SIGINT || code == 128 + SIGTERM) return code;
  return g_passed_on == 0 ? 1 : 128 + (g_passed_on == SIGINT ? SIGINT : SIGTERM);
}

}  // namespace

ForwardedSignals::ForwardedSignals() {
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2})
    if (!stays_ignored(signal)) sigaction(signal, &action, nullptr);
}

void ForwardedSignals::to(const std::vector<pid_t>& children) {
  g_count = 0;
  LMX_CHECK(children.size() <= kMostChildren, children.size(), " child processes");
  for (size_t i = 0; i < children.size(); ++i) g_children[i] = children[i];
  g_count = static_cast<int>(children.size());
}

EndAtSignal::EndAtSignal(bool speaks) {
  g_speaks = speaks ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = end_at;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kEnding.size(); ++i) {
    sigaction(kEnding[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kEnding[i], &action, nullptr);
  }
}

EndAtSignal::~EndAtSignal() {
  for (size_t i = 0; i < kEnding.size(); ++i) sigaction(kEnding[i], &before_[i], nullptr);
}

void accept_forwarded_signals() {
  struct sigaction action {};
  action.sa_handler = take_as_own;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR2, &action, nullptr);
}

void require_few_ranks(int64_t ranks, const std::string& path) {
  if (ranks > kMostChildren)
    throw UserError(str("[", path, "] lmx starts at most ", kMostChildren, " ranks on a host, and comm.ranks is ",
                        ranks, "; start them on several hosts by a launcher (docs/cluster.md)"));
}

void ignore_broken_pipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

pid_t start_child(const std::vector<std::string>& command, const Relay& messages) {
  const pid_t child = fork();
  if (child < 0) throw RunError(str("[comm] ", command[0], " cannot be started: ", std::strerror(errno)));
  if (child == 0) become(command, messages.writer());
  return child;
}

// Processes that `parent` has started and not yet waited for, and whether each has ended.
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

void end_children() {
  for (const auto& [child, ended] : children_of(getpid())) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? str("SIG", name) : str("signal ", signal);
}

std::string memory_hint(int signal) {
  return signal == SIGKILL ? "; Linux ends processes like this when memory runs out, see dmesg" : "";
}

void end_job(int ranks, int status, const Relay& messages, const std::function<std::string()>& describe) {
  const int code = exit_code_of(status);
  const bool as_asked = code == 0 || code > 128;
  if (as_asked || messages.has_error()) throw EndProcess(code, str("[comm] ", ranks, " ranks have run"), true);
  throw EndProcess(code, describe(), false);
}

// A recipe in the size of a paper requests the ranks of a cluster.
void warn_of_crowd(int ranks, const std::string& launchers) {
  constexpr int kRanksPerCore = 4;
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof own, &own) != 0) return;
  const int cores = CPU_COUNT(&own);
  if (ranks > kRanksPerCore * cores)
    log_warn(str(ranks, " processes on ", plural(cores, "core"), " of this host: start them over several by ",
                 launchers,
                 ", or train the same batches with fewer, "
                 "comm.ranks=",
                 cores));
}

JobFolder::JobFolder(const std::string& prefix) {
  remove_empty_folders(prefix);
  std::string pattern = str(kShared, "/", prefix, "XXXXXX");
  if (mkdtemp(pattern.data())) path_ = pattern;
}

JobFolder::~JobFolder() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
}

}  // namespace lmx::processes
