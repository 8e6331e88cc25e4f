// When gradients were exchanged, from a run's records (docs/run-files.md): hidden behind the backward pass, or exposed.
#pragma once

#include <string>
#include <vector>

#include "app/records/records.h"
#include "sync/unit_queue.h"

namespace lmx_cli {

// The gradients that are exchanged together: means over ranks and records, in seconds since the start of the step.
struct UnitTimes {
  std::string first;  // name of its first parameter
  double bytes = 0, ready = 0, begin = 0, end = 0;
  double hidden = 0, exposed = 0;  // parts of begin to end: before and after the last unit of the rank's step was ready
};

// Times per step, in seconds.
struct CommTimes {
  double busy = 0, exposed = 0;  // rank 0, mean over the run: exchanging gradients; and doing nothing else meanwhile
  double possible =
      0;  // upper bound of hidden: the smaller of the exchange's time and the time from first to last `ready`
  std::vector<UnitTimes> units;  // in the order of the exchange; of the last step before each record
  double hidden() const { return busy > exposed ? busy - exposed : 0; }
};

CommTimes comm_times(const std::vector<RunRecord>& records);

}  // namespace lmx_cli
