// Child processes of an lmx that starts the ranks of its job itself: mpirun, or the ranks.
#pragma once

#include <sys/types.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lmx::processes {

// The stderr output of child processes.

// A pipe that takes the place of the children's stderr. Forwards what they print, and looks for lines that begin with
// "error: ".
class Relay {
 public:
  Relay();  // RunError: the system has no pipe left
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int writer() const { return ends_[1]; }  // for the children
  void close_writer();                     // to be called when all children have been started
  // Waits up to `milliseconds` for output and forwards it.
  void relay(int milliseconds);
  void drain();  // forwards what there is
  bool has_error() const { return has_error_; }

 private:
  void look(std::string_view text);

  int ends_[2] = {-1, -1};
  size_t column_ = 0;  // characters of "error: " that the line matches so far
  bool open_ = true, has_error_ = false;
};

// A folder in shared memory for the files of a job, which only this user can open. The destructor removes it with all
// files that are left. `path` is "" if the folder cannot be created.
class JobFolder {
 public:
  explicit JobFolder(const std::string& prefix);  // of its name: "lmx-mpi-"
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// From its construction on, this process does not end on SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1 and SIGUSR2, but
// forwards them to its children: SIGINT as SIGUSR1, the others as SIGUSR2. mpirun forwards these two at once; on
// SIGTERM it would kill the ranks one second later, before a checkpoint can be written.
class ForwardedSignals {
 public:
  ForwardedSignals();
  void to(const std::vector<pid_t>& children);  // at most 4096
};

// During its lifetime, a signal that stops a run ends this rank at once: there is nothing to save before the ranks have
// met, and the library of messages, which waits for the others, cannot be interrupted. `speaks`: whether this rank
// prints why.
class EndAtSignal {
 public:
  explicit EndAtSignal(bool speaks);
  ~EndAtSignal();
  EndAtSignal(const EndAtSignal&) = delete;
  EndAtSignal& operator=(const EndAtSignal&) = delete;

 private:
  std::array<struct sigaction, 5> before_{};
};

// In a rank: SIGUSR1 and SIGUSR2 act like SIGINT and SIGTERM.
void accept_forwarded_signals();

// UserError, which begins with `path`: lmx cannot start so many ranks on a host.
void require_few_ranks(int64_t ranks, const std::string& path);

// In a rank: ignores SIGPIPE. The library of messages writes to the connection of a rank that has died; this rank must
// report that, not die.
void ignore_broken_pipes();

// Starts a command, whose first word is the path of a program; its stderr is the relay. RunError: the system refuses.
pid_t start_child(const std::vector<std::string>& command, const Relay& messages);

// Processes that `parent` has started and not yet waited for, and whether each has ended.
std::vector<std::pair<pid_t, bool>> children_of(pid_t parent);
void end_children();  // kills all children of this process and waits for them

std::string signal_text(int signal);  // "SIGKILL"
std::string memory_hint(int signal);  // what SIGKILL may mean, to be appended to a message; "" for other signals

// Throws lmx::EndProcess with the end of a job of `ranks` ranks. `status`: from waitpid(), of the child that explains
// it. lmx's own exit codes are returned unchanged. Any other code is a failed run (137: a rank was killed, 205: a host
// is lost), or a run that a forwarded signal ended before its ranks could handle the signal. If the run failed and no
// rank has printed an error, the error is describe().
[[noreturn]] void end_job(int ranks, int status, const Relay& messages, const std::function<std::string()>& describe);

// Warns of more than four ranks a core of this host. `launchers`: how ranks are started on several hosts.
void warn_of_crowd(int ranks, const std::string& launchers);

}  // namespace lmx::processes
