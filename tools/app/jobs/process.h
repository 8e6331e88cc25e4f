// A child process that ends together with its parent, also if the parent is killed by a signal.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"

namespace lmx::app::jobs {

// The settings of a child that differ from its parent's.
struct Surroundings {
  std::vector<int> cores;  // it may only run on these; empty: on all of its parent's
  std::vector<std::pair<std::string, std::string>> environment;  // variables to set
  int at_parents_end = SIGKILL;                                  // the signal that the child gets if its parent dies
};

class Child {
 public:
  // Starts `words[0]`, an absolute path, and appends its output to the file `log`. Without a `log` the child has the
  // output of this process. RunError: it cannot be started.
  Child(const std::vector<std::string>& words, const std::string& log, const Surroundings& around = {});
  ~Child();  // kills it if it still runs
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  std::optional<int> poll();  // exit code, or 128 + signal, after it has ended
  void send(int signal) const;

 private:
  pid_t pid_ = -1;
};

// Locks `directory` for one process at a time; creates it if it is missing. UserError: another process has locked it.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);

 private:
  FileLock lock_;
};

// Returns whether a process holds the .lock of `directory`: a run, or a program with a DirectoryLock there.
bool is_locked(const std::string& directory);

// During its lifetime, SIGINT and SIGTERM are recorded instead of ending the process. SIGHUP, SIGPIPE, SIGUSR1 and
// SIGUSR2 are recorded as SIGTERM; together they count as one signal, because a closed terminal sends several. A SIGHUP
// (nohup) or SIGPIPE that is already ignored stays ignored.
class SignalNote {
 public:
  SignalNote();
  ~SignalNote();
  SignalNote(const SignalNote&) = delete;
  SignalNote& operator=(const SignalNote&) = delete;
  static int received();  // the last one: SIGINT or SIGTERM; 0: none
  static int count();

 private:
  std::array<struct sigaction, 6> before_{};  // the previous handlers
};

// Processes that a child has left behind when it ended.

// From its construction on, the descendants of an ended child become children of this process.
class OrphanReaper {
 public:
  OrphanReaper();
  // Waits until this process has no child, and kills those that still run after `patience`, or as soon as `urgent`
  // returns true. REQUIRES: no Child object has a running process.
  void end_all(std::chrono::milliseconds patience, const std::function<bool()>& urgent) const;
};

// Processes that the kernel has killed.

// Returns how often the kernel has killed a process of this process's cgroup because of lack of memory. If the cgroup
// does not count this, returns the number for the whole machine.
int64_t memory_kills();
// Returns the files that may contain this number, the nearest cgroup first. `cgroups`: the contents of
// /proc/self/cgroup.
std::vector<std::string> memory_counters(const std::string& cgroups);
// Reads the number from the first file that has a line `oom_kill N`; 0 if none has.
int64_t kills_counted(const std::vector<std::string>& files);

}  // namespace lmx::app::jobs
