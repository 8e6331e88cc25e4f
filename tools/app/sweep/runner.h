// Runs the points of a sweep to an outcome each.
#pragma once

#include <string>

#include "app/sweep/journal.h"
#include "app/sweep/launcher.h"
#include "app/sweep/live.h"

namespace lmx_cli::sweeps {

struct RunOptions {
  bool fail_fast = false;
  int64_t retry = 0;  // starts of a point beyond the first, where it failed, ran out of memory or was preempted
};

struct Result {
  int signal = 0;      // that ended it early; 0: none
  std::string failed;  // with fail_fast: the point that failed, and why
};

// The metric of every point that has ended, read from its run again: where the sweep goes by another metric than
// before.
void measure_again(const Plan& plan, const Folder& folder, Journal& journal);

// What has ended stays, what has begun goes on. RunError: a journal that cannot be written. UserError: a
// rung of halving at which no point has a value.
Result run_points(const Plan& plan, const Folder& folder, Journal& journal, Launcher& launcher,
                  const RunOptions& options);

}  // namespace lmx_cli::sweeps
