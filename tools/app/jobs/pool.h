// Several commands at a time, each a process of its own.
#pragma once

#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/process.h"

namespace lmx_cli::jobs {

struct Job {
  std::string id;
  std::vector<std::string> words;  // the first an absolute path
  std::string log;                 // what it prints is appended to this file
  Surroundings around = {};
};

struct Ended {
  std::string id;
  int code = 0;            // its exit code, or 128 + signal
  double seconds = 0;      // that it took
  std::vector<int> cores;  // of its surroundings
};

// The signals of SignalNote to this process are passed on to all as SIGTERM while it lives; a second SIGINT or SIGTERM
// ends a run of lmx at once.
class Pool {
 public:
  ~Pool();  // kills what still runs
  void start(const Job& job);
  size_t size() const { return running_.size(); }
  // One that has ended. Passes signals on first.
  std::optional<Ended> poll();
  void send(const std::string& id, int signal) const;
  int signal() const { return signal_; }  // the last one that was passed on; 0: none
  // Sleeps a moment, shorter than anyone notices.
  static void wait();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::string id;
    Child child;
    Clock::time_point start;
    std::vector<int> cores;
  };
  void pass_signals_on();

  const SignalNote note_;
  std::list<Running> running_;
  int told_ = 0;  // signals that the children know of
  int signal_ = 0;
};

// `lmx run RECIPE run.dir=DIRECTORY --resume auto`: what begins a run, or goes on with it, and is done at once where it
// is.
std::vector<std::string> run_command(const std::string& recipe, const std::string& directory,
                                     const std::vector<std::string>& plugin_directories);

// "error: ..." of a process that ended badly, as its log has it last; else where to look.
std::string last_error(const std::string& log);

// The last `name` ("step", "epoch") that the run in `folder` has recorded; 0: none.
double last_number(const std::string& folder, const std::string& name);

// "45s", "3m20s", "2h05m".
std::string time_text(double seconds);

}  // namespace lmx_cli::jobs
