// Starts the points of a sweep.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/points/journal.h"
#include "app/points/outcome.h"
#include "app/points/store.h"

namespace lmx_cli::sweeps {

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

}  // namespace lmx_cli::sweeps
