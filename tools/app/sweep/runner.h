// Runs each point of a sweep until it has an outcome.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/sweep/journal.h"
#include "app/sweep/store.h"

namespace lmx::app::sweep {

struct LaunchOptions {
  int64_t jobs = 0;                    // points at a time; 0: no limit
  std::vector<std::string> scheduler;  // options of sbatch
};

// Runs points in array jobs, also those that an earlier process has submitted. `journal` must outlive the launcher.
std::unique_ptr<jobs::Launcher> slurm_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options,
                                               Journal& journal);

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
Result run_points(const Plan& plan, const Folder& folder, Journal& journal, jobs::Launcher& launcher,
                  const RunOptions& options);

}  // namespace lmx::app::sweep
