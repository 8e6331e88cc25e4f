// Times in a run's records (docs/run-files.md): the duration of sub-batches, and when gradients were exchanged.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/records/records.h"
#include "sync/unit_queue.h"

namespace lmx::app {

struct Interval {
  double begin = 0, end = 0;  // seconds since the start of the step
  std::string name;           // "3,412 tokens"; a unit's first parameter
  bool travels = false;       // true: exchange of gradients; false: forward and backward pass
};

// Returns the sub-batches and gradient units of one rank's record, ordered by their begin.
std::vector<Interval> intervals_of(const RunRecord& record);

struct SubBatches {
  std::map<double, double> histogram;                 // sub-batches of all ranks and steps, by lower end in seconds
  int64_t step = 0;                                   // the last recorded step
  std::map<int64_t, std::vector<Interval>> timeline;  // of that step, by rank
  bool empty() const { return histogram.empty(); }
  // Statistics use the middle of each bar.
  double mean() const;
  double quantile(double q) const;
};
SubBatches sub_batches(const std::vector<RunRecord>& records);

std::string histogram_svg(const SubBatches& all);
std::string timeline_svg(const SubBatches& all);
// Returns a trace for chrome://tracing and ui.perfetto.dev: one process per rank, with a lane for computation and one
// for gradients.
std::string timeline_trace(const SubBatches& all);

// When gradients or values were exchanged: hidden behind computation, or exposed.

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

}  // namespace lmx::app
