// Runs each point of a sweep until it has an outcome: how points are started, and how their progress is shown.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/points/journal.h"
#include "app/points/store.h"

namespace lmx_cli::sweeps {

// Starts the points of a sweep.

// A point to run, to its end or up to a step.
struct Work {
  size_t point = 0;
  int64_t until = 0;  // 0: its end
};

struct Finished {
  size_t point = 0;
  Ending ending;
  double seconds = 0;
};

class Launcher {
 public:
  virtual ~Launcher();
  // Returns the points that run since before this process began: the rest of `batches`.
  virtual std::vector<size_t> recover(const std::vector<Batch>& batches) = 0;
  // Starts as many of `waiting` as there is room for, in their order. Returns their number.
  virtual size_t launch(const std::vector<Work>& waiting) = 0;
  virtual std::vector<Finished> poll() = 0;
  virtual std::vector<size_t> running() const = 0;
  virtual int signal() const = 0;     // the SIGINT or SIGTERM that this process received; 0: none
  virtual bool outlives() const = 0;  // true: points continue when this process ends
  virtual void stop() = 0;            // asks all points to write a checkpoint and to end
};

struct LaunchOptions {
  int64_t jobs = 0;                    // simultaneous points; 0: one for local_launcher, no limit for slurm_launcher
  std::vector<std::string> scheduler;  // options of sbatch
};

// Runs points as processes on this machine; they divide its cores.
std::unique_ptr<Launcher> local_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options);
// Runs points in array jobs. `journal` must outlive the launcher.
std::unique_ptr<Launcher> slurm_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options,
                                         Journal& journal);

// Returns the `lmx run` command of a point.
std::vector<std::string> point_command(const Plan& plan, const Folder& folder, const Work& work);
void forget_status(const Folder& folder, const Point& point);

// Shows the progress of a sweep: on a terminal a table that is redrawn, otherwise a line for each point that has ended.

class Live {
 public:
  Live(const Plan& plan, const Folder& folder, const Journal& journal);
  void started(size_t point);
  void ended(size_t point);        // with the state that the journal contains
  void again(size_t point);        // the point has ended, but will be started again
  void interrupted(size_t point);  // because the sweep ends
  void show();                     // at most twice a second
  void done();

 private:
  using Clock = std::chrono::steady_clock;
  struct Row {
    std::vector<std::string> cells;
  };
  std::string summary() const;
  std::string eta() const;
  std::vector<std::string> lines() const;
  void erase();

  const Plan& plan_;
  const Folder folder_;
  const Journal& journal_;
  std::map<size_t, Clock::time_point> running_;
  std::vector<size_t> last_;  // points that have ended, the newest last
  size_t ended_before_ = 0;
  Clock::time_point start_, shown_;
  size_t drawn_ = 0;  // lines of the table on the terminal
};

struct RunOptions {
  bool fail_fast = false;
  int64_t retry = 0;  // additional starts of a point that failed, ran out of memory or was preempted
};

struct Result {
  int signal = 0;      // the signal that ended the sweep early; 0: none
  std::string failed;  // with fail_fast: the point that failed, and the reason
};

// Reads the metric of every point that has ended from its run again. For a sweep whose metric has changed.
void measure_again(const Plan& plan, const Folder& folder, Journal& journal);

// Points that have ended stay unchanged; points that have begun continue. RunError: a journal that cannot be written.
// UserError: a rung of halving at which no point has a value.
Result run_points(const Plan& plan, const Folder& folder, Journal& journal, Launcher& launcher,
                  const RunOptions& options);

}  // namespace lmx_cli::sweeps
