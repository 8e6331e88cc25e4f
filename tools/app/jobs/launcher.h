// Runs jobs until each has ended: as processes of this machine, whose cores are divided among them, or as jobs of Slurm
// (slurm.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/jobs/process.h"
#include "app/jobs/progress.h"
#include "lmx/config.h"
#include "lmx/log.h"

namespace lmx::app::jobs {

// The resources that a recipe requests.
struct Demand {
  int64_t processes = 1;  // processes that the recipe starts (comm: mpi)
  int64_t threads = 0;    // per process; 0: as many as there are cores
};

// Reads the demand of a recipe with every default.
Demand demand_of(const Node& recipe);

// The number of cores that this process may use.
int64_t own_core_count();

// A point of a sweep, or a cell of an experiment.
struct Job {
  std::string id;
  std::vector<std::string> words;  // its command; the first word is an absolute path
  std::string run;                 // the folder of its run
  std::string log;                 // its output is appended to this file
  Demand demand = {};
  int64_t until = 0;                        // the step at which the command ends; 0: the end of the training
  std::function<void()> prepare = nullptr;  // is called before each start
};

// How a job has ended.
struct Ended {
  std::string id;
  int code = 0;                // exit code, or 128 + signal
  double seconds = 0;          // its running time
  bool memory_killed = false;  // meanwhile the kernel or the scheduler ended a process because of lack of memory
  std::string outside = {};    // why the scheduler ended it ("PREEMPTED", "NODE_FAIL"), if known
};

// During its lifetime, signals are recorded (SignalNote).
class Launcher {
 public:
  virtual ~Launcher();
  // Starts as many of `waiting` as there is room for, in their order. Returns their number.
  virtual size_t start(const std::deque<Job>& waiting) = 0;
  virtual std::vector<Ended> poll() = 0;
  // To be called when the result of a job that has ended is recorded, or its failure is known.
  virtual void recorded(const std::string&) {}
  virtual std::vector<std::string> running() const = 0;
  virtual bool outlives() const = 0;             // true: jobs continue when this process ends
  virtual void stop() = 0;                       // asks all jobs to write a checkpoint and to end
  std::function<void()> before_message = [] {};  // is called before a line is logged

 protected:
  void say(LogLevel level, const std::string& text) const;

 private:
  const SignalNote note_;
};

// Runs at most `jobs` jobs (0: one) of `most` at a time as processes, which divide the cores of this machine. Signals
// are sent to all of them as SIGTERM; a second one ends a run of lmx immediately. Jobs end together with this process.
std::unique_ptr<Launcher> local_launcher(int64_t jobs, size_t most);

// The jobs of a sweep or of an experiment.
class Runner {
 public:
  Runner(Launcher& launcher, Progress& progress);
  virtual ~Runner();

 protected:
  virtual void started(const Job&) {}
  virtual void ended(const Ended& job) = 0;  // may add a job to waiting_
  // Runs the jobs of waiting_ and those that run already. After stop() or a signal none is started. After a signal it
  // does not wait for jobs that outlive this process.
  void drive();
  void stop();
  bool interrupted() const { return stopped_ || SignalNote::count() > 0; }

  std::deque<Job> waiting_;
  Launcher& launcher_;
  Progress& progress_;

 private:
  void start();
  bool stopped_ = false;
};

// Returns `lmx run RECIPE run.dir=DIRECTORY --resume auto`: it starts or continues a run, or ends immediately if the
// run is done.
std::vector<std::string> run_command(const std::string& recipe, const std::string& directory,
                                     const std::vector<std::string>& plugin_directories);

// Prepares the start of a job. Removes the status of an earlier start, which must not count as that of the next one.
void prepare(const Job& job);

}  // namespace lmx::app::jobs
