#include "mpirun.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "lmx/error.h"

namespace lmx_mpi {
namespace {

namespace fs = std::filesystem;
using lmx::str;

// Signal handlers use only these variables: the process id of mpirun, and the last signal that was forwarded to it.
volatile std::sig_atomic_t g_mpirun = 0, g_passed_on = 0;

// The ranks handle SIGUSR1 like SIGINT and SIGUSR2 like SIGTERM (start.h).
extern "C" void pass_on(int signal) {
  g_passed_on = signal;
  const int number = signal == SIGINT ? SIGUSR1 : SIGUSR2;
  if (g_mpirun > 0) kill(static_cast<pid_t>(g_mpirun), number);
}

void pass_signals_on() {
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup stays effective
  }
}

// In the child: executes mpirun. A separate process group ensures that a terminal's Ctrl-C reaches mpirun through lmx
// only. When lmx ends, mpirun gets SIGTERM and ends the ranks.
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

// Forwards the stderr output of mpirun and its ranks, and looks for lines that begin with "error: ".
class Messages {
 public:
  Messages() {
    if (pipe2(ends_, O_CLOEXEC) != 0)
      throw lmx::RunError(str("[comm] mpirun cannot be started: ", std::strerror(errno)));
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Messages() {
    close_writer();
    close(ends_[0]);
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  // Waits up to `milliseconds` for output and forwards it.
  void relay(int milliseconds) {
    pollfd event{open_ ? ends_[0] : -1, POLLIN, 0};
    if (poll(&event, 1, milliseconds) > 0) drain();
  }
  void drain() {
    char text[4096];
    for (ssize_t n = 0; (n = read(ends_[0], text, sizeof text)) != -1 || errno == EINTR;) {
      if (n == 0) open_ = false;
      if (n <= 0) break;
      look({text, static_cast<size_t>(n)});
      pass({text, static_cast<size_t>(n)});
    }
  }
  bool has_error() const { return has_error_; }

 private:
  static void pass(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;  // a closed terminal
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  void look(std::string_view text) {
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

  int ends_[2] = {-1, -1};
  size_t column_ = 0;  // characters of kError that the line matches so far
  bool open_ = true, has_error_ = false;
};

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

struct Ending {
  int status = 0;     // of mpirun, from waitpid()
  bool hung = false;  // its ranks had ended, but mpirun had not
};

// Seconds that mpirun may continue to run after a rank has ended.
constexpr int kPatienceS = 5;

// After a rank has left without MPI_Finalize, Open MPI's mpirun may wait for one of its locks forever. An mpirun that
// was stopped waits for SIGCONT. In both cases it is killed.
Ending wait_for(pid_t mpirun, Messages& messages) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPollMs = 20;
  constexpr auto kLookEvery = std::chrono::milliseconds(500);
  Ending end;
  auto looked = Clock::now(), attended = looked;  // last time without an ended rank
  while (waitpid(mpirun, &end.status, WNOHANG) != mpirun) {
    messages.relay(kPollMs);
    if (Clock::now() - looked < kLookEvery) continue;
    looked = Clock::now();
    const std::vector<std::pair<pid_t, bool>> children = children_of(mpirun);
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

// Kills the ranks of an mpirun that was killed. They are children of this process, which is their reaper. Their
// messages would be sent to mpirun.
void end_orphans() {
  for (const auto& [child, ended] : children_of(getpid())) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

// lmx's own exit codes are returned unchanged. Any other code is a failed run (137: a rank was killed, 205: a host is
// lost), or a run that a signal ended before its ranks could handle the signal.
int exit_code_of(int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (code == 0 || code == 2 || code == 128 + SIGINT || code == 128 + SIGTERM) return code;
  return g_passed_on == 0 ? 1 : 128 + (g_passed_on == SIGINT ? SIGINT : SIGTERM);
}

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? str("SIG", name) : str("signal ", signal);
}

std::string describe(const Ending& end) {
  if (end.hung)
    return str("[comm] mpirun did not end, though its ranks had ended ", kPatienceS,
               " s before, and was killed (was it stopped?)");
  if (WIFSIGNALED(end.status))
    return str("[comm] mpirun was ended by ", signal_text(WTERMSIG(end.status)), ", and its ranks with it");
  const int code = WEXITSTATUS(end.status);
  if (code > 128 && code < 128 + NSIG)
    return str("[comm] a rank was ended by ", signal_text(code - 128), " and could not print why (mpirun's exit code ",
               code, ")",
               code == 128 + SIGKILL ? "; Linux ends processes like this when memory runs out, see dmesg" : "");
  return str("[comm] mpirun ended with exit code ", code, ", and no rank has printed an error");
}

constexpr const char *kShared = "/dev/shm", *kJobFolder = "lmx-mpi-";

// If lmx was killed, its mpirun has emptied the folder without removing it. Folders of starting jobs are younger than a
// minute.
void remove_empty_folders() {
  std::error_code error;
  const auto old = fs::file_time_type::clock::now() - std::chrono::minutes(1);
  for (const fs::directory_entry& entry : fs::directory_iterator(kShared, error))
    if (entry.path().filename().string().starts_with(kJobFolder) && entry.last_write_time(error) < old)
      rmdir(entry.path().c_str());  // fails if it is not empty, or another user's
}

}  // namespace

JobFolder::JobFolder() {
  remove_empty_folders();
  std::string pattern = str(kShared, "/", kJobFolder, "XXXXXX");
  if (mkdtemp(pattern.data())) path_ = pattern;
}

JobFolder::~JobFolder() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
}

JobEnd run_mpirun(const std::vector<std::string>& command) {
  Messages messages;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t child = fork();
  if (child < 0) throw lmx::RunError(str("[comm] mpirun cannot be started: ", std::strerror(errno)));
  if (child == 0) become(command, messages.writer());
  messages.close_writer();
  g_mpirun = child;
  pass_signals_on();
  const Ending end = wait_for(child, messages);
  g_mpirun = 0;
  end_orphans();
  const int code = exit_code_of(end.status);
  const bool as_asked = code == 0 || code > 128;
  return {code, as_asked || messages.has_error() ? "" : describe(end)};
}

}  // namespace lmx_mpi
