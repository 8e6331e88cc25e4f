// What starts the points of a sweep.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/sweep/journal.h"
#include "app/sweep/outcome.h"
#include "app/sweep/store.h"

namespace lmx_cli::sweeps {

// A point that is to run, to its end or to a step.
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
  // Points that run since before this process began: what is left of `batches`.
  virtual std::vector<size_t> recover(const std::vector<Batch>& batches) = 0;
  // Starts as many of `waiting` as there is room for, in their order; their number.
  virtual size_t launch(const std::vector<Work>& waiting) = 0;
  virtual std::vector<Finished> poll() = 0;
  virtual std::vector<size_t> running() const = 0;
  virtual int signal() const = 0;     // SIGINT or SIGTERM that this process got; 0: none
  virtual bool outlives() const = 0;  // points go on when this process ends
  virtual void stop() = 0;            // asks all points to write a checkpoint and to end
};

struct LaunchOptions {
  int64_t jobs = 0;                    // points at a time; 0: one here, as many as the scheduler likes there
  std::vector<std::string> scheduler;  // options of sbatch
};

// Processes on this machine, which share its cores out.
std::unique_ptr<Launcher> local_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options);
// UserError where there is no Slurm.
void require_slurm();
// Array jobs. `journal` must outlive it.
std::unique_ptr<Launcher> slurm_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options,
                                         Journal& journal);

// `lmx run` of a point, whose status.json is of this start from here on.
std::vector<std::string> point_command(const Plan& plan, const Folder& folder, const Work& work);
void forget_status(const Folder& folder, const Point& point);

}  // namespace lmx_cli::sweeps
