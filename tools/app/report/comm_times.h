// When gradients travelled, of a run's records (docs/run-files.md): hidden behind backward, or exposed.
#pragma once

#include <string>
#include <vector>

#include "app/records/run_records.h"
#include "recipe/sync_rules.h"

namespace lmx_cli {

// A unit of gradients that travels at one time: means of ranks and of records, seconds since the step's begin.
struct UnitTimes {
  std::string first;  // of its parameters
  double bytes = 0, ready = 0, begin = 0, end = 0;
  double hidden = 0, exposed = 0;  // of begin to end: before and after the last unit of the rank's step was ready
};

// Seconds of a step.
struct CommTimes {
  double busy = 0, exposed = 0;  // rank 0, mean over the run: gradients travelled; and it had nothing else to do
  double possible =
      0;  // what overlap could hide: the time from the first unit's ready to the last's, or all travelling
  std::vector<UnitTimes> units;  // in the order in which they travel; of the last step before each record
  double hidden() const { return busy > exposed ? busy - exposed : 0; }
};

CommTimes comm_times(const std::vector<RunRecord>& records);

}  // namespace lmx_cli
