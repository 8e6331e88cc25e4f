// How long sub-batches took, of a run's records (docs/run-files.md): a histogram, and what each rank did in a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/records/run_records.h"

namespace lmx_cli {

struct Interval {
  double begin = 0, end = 0;  // seconds since the step's begin
  std::string name;           // "3,412 tokens"; a unit's first parameter
  bool travels = false;       // gradients; else a forward and backward
};

// Of one rank's record: its sub-batches and units of gradients, by their beginnings.
std::vector<Interval> intervals_of(const RunRecord& record);

struct SubBatches {
  std::map<double, double> histogram;                 // sub-batches of all ranks and steps, by the bar's least seconds
  int64_t step = 0;                                   // the last one that is recorded
  std::map<int64_t, std::vector<Interval>> timeline;  // of that step, by rank
  bool empty() const { return histogram.empty(); }
  // Over the bars' middles.
  double mean() const;
  double quantile(double q) const;
};
SubBatches sub_batches(const std::vector<RunRecord>& records);

std::string histogram_svg(const SubBatches& all);
std::string timeline_svg(const SubBatches& all);
// For chrome://tracing and ui.perfetto.dev: a process a rank, computing and gradients as two lanes.
std::string timeline_trace(const SubBatches& all);

}  // namespace lmx_cli
