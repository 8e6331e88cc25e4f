// A child process that outlives neither its parent nor a signal to it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_lock.h"

namespace lmx_cli::jobs {

// What a child has that its parent has not.
struct Surroundings {
  std::vector<int> cores;  // it may run on these alone; empty: on all of its parent's
  std::vector<std::pair<std::string, std::string>> environment;  // set for it
};

class Child {
 public:
  // Starts `words[0]`, an absolute path; what it prints is appended to the file `log`. RunError where that fails.
  Child(const std::vector<std::string>& words, const std::string& log, const Surroundings& around = {});
  ~Child();  // kills it where it still runs
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  std::optional<int> poll();  // its exit code, or 128 + signal, once it has ended
  void send(int signal) const;

 private:
  pid_t pid_ = -1;
};

// This program's own file.
std::string own_program();

// One process at a time works in `directory`, which is made where it is missing. UserError where another does.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);

 private:
  lmx::FileLock lock_;
};

// True while a process works in `directory`, whose .lock it holds: a run, or what has a DirectoryLock there.
bool is_locked(const std::string& directory);

// SIGINT and SIGTERM are noted instead of ending the process, for the guard's lifetime; so are SIGHUP, SIGUSR1 and
// SIGUSR2, which count as SIGTERM and together as one signal, however often they come (a closed terminal sends
// several). A SIGHUP that is ignored already (nohup) stays ignored.
class SignalNote {
 public:
  SignalNote();
  ~SignalNote();
  SignalNote(const SignalNote&) = delete;
  SignalNote& operator=(const SignalNote&) = delete;
  static int received();  // the last one, SIGINT or SIGTERM; 0: none
  static int count();

 private:
  std::array<struct sigaction, 5> before_{};  // the handlers before
};

}  // namespace lmx_cli::jobs
