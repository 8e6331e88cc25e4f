// Runs several commands at a time, each in a separate process.
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
  std::vector<std::string> words;  // the first word is an absolute path
  std::string log;                 // the output is appended to this file
  Surroundings around = {};
};

struct Ended {
  std::string id;
  int code = 0;            // its exit code, or 128 + signal
  double seconds = 0;      // its running time
  std::vector<int> cores;  // of its surroundings
};

// During its lifetime, signals that SignalNote records are sent to all children as SIGTERM. A second SIGINT or SIGTERM
// ends a run of lmx immediately.
class Pool {
 public:
  ~Pool();  // kills children that still run
  void start(const Job& job);
  size_t size() const { return running_.size(); }
  // Returns a job that has ended. Forwards signals first.
  std::optional<Ended> poll();
  void send(const std::string& id, int signal) const;
  int signal() const { return signal_; }  // the last one that was forwarded; 0: none
  // Sleeps for a short, unnoticeable time.
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
  int told_ = 0;  // number of signals that were sent to the children
  int signal_ = 0;
};

// Returns `lmx run RECIPE run.dir=DIRECTORY --resume auto`: it starts or continues a run, or ends immediately if the
// run is done.
std::vector<std::string> run_command(const std::string& recipe, const std::string& directory,
                                     const std::vector<std::string>& plugin_directories);

// Returns the last "error: ..." in the log of a process that failed; otherwise where to look. A line that begins with it
// comes before those of launchers, as "srun: error: ...", which report the end of a process below its own message.
std::string last_error(const std::string& log);

// Returns the last `name` ("step", "epoch") that the run in `folder` has recorded; 0 if there is none.
double last_number(const std::string& folder, const std::string& name);

// "45s", "3m20s", "2h05m".
std::string time_text(double seconds);

}  // namespace lmx_cli::jobs
