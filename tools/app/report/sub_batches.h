// The duration of sub-batches, from a run's records (docs/run-files.md): a histogram, and a timeline of each rank in a
// step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/records/records.h"

namespace lmx_cli {

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

}  // namespace lmx_cli
