// Runs each point of a sweep until it has an outcome.
#pragma once

#include <string>

#include "app/points/journal.h"
#include "app/sweep/launcher.h"
#include "app/sweep/live.h"

namespace lmx_cli::sweeps {

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
