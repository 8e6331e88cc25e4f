// Runs beside each other: the number that they are compared by, runs that differ by their seed alone, the winner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/report/report.h"

namespace lmx_cli::reports {

// Runs whose configurations are equal except `seed` and `run.*`.
struct SeedGroup {
  std::vector<size_t> runs;    // indices, in the order given
  std::vector<double> values;  // of those that have one, in the same order
  double mean = NAN;           // of `values`; NaN without any
  // Half the width of the mean's 95 % confidence interval by Student's t; nothing for fewer than two values.
  std::optional<double> half_interval;
};

struct Comparison {
  std::string metric;  // "best valid ppl", "test BLEU", or a sweep's metric
  bool lower_is_better = true;
  std::vector<double> values;  // of each run; NaN if it diverged or has no such number
  std::vector<SeedGroup> groups;
  std::vector<size_t> group_of;  // index in `groups` of each run
  int64_t best_group = -1;       // the group of the best mean; -1: no run has a value
  int64_t best_run = -1;         // the best run of that group
};

// By the score of `train.final_bleu` if a run has one, otherwise by the lowest validation perplexity.
Comparison compare(const std::vector<const Report*>& runs);
// By these values, one for each run.
Comparison compare(const std::vector<const Report*>& runs, const std::string& metric, bool lower_is_better,
                   std::vector<double> values);

// The step at which the run's number of compare(runs) was measured; -1 without one.
int64_t step_of_best(const Report& run);

// "24.31", "24.31 ± 0.42 (mean of 3 seeds, 95 % interval)": the winner's number; "" if no run has one.
std::string headline_value(const Comparison& c);

// {"RUN", "STATE", ...}: one line a run, the winner marked by *. For a terminal.
std::vector<std::vector<std::string>> comparison_rows(const std::vector<Report>& runs, const Comparison& c);

}  // namespace lmx_cli::reports
