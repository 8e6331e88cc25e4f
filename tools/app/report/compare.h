// Compares runs: the number used for the comparison, groups of runs that differ only in their seed, and the winner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/report/report.h"

namespace lmx::app::report {

// A key of the configurations.
struct Setting {
  std::string key;
  std::vector<std::string> values;  // of each run; "" if its configuration lacks the key
  bool same() const;                // all runs have one value
};
// Every key of the configurations, in the order in which they occur.
std::vector<Setting> settings_of(const std::vector<const Report*>& runs);
std::string seed_of(const Report& run);  // "" if its configuration has none
// Returns whether a key can change results beyond the noise between seeds: all but `seed` and `run.*`.
bool is_setting(const std::string& key);

// Runs whose configurations are equal apart from `seed` and `run.*`.
struct SeedGroup {
  std::vector<size_t> runs;    // indices, in the order given
  std::vector<double> values;  // of the runs that have one, in the same order; of several with one seed the first
  double mean = NAN;           // of `values`; NaN without any
  // Half the width of the mean's 95 % confidence interval by Student's t; nothing if there are fewer than two values.
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

// Compares by the score of `train.final_bleu` if a run has one, otherwise by the lowest validation perplexity.
Comparison compare(const std::vector<const Report*>& runs);
// Compares by these values, one for each run.
Comparison compare(const std::vector<const Report*>& runs, const std::string& metric, bool lower_is_better,
                   std::vector<double> values);

// Returns the step of the number that compare(runs) uses for this run; -1 if it has none.
int64_t step_of_best(const Report& run);

// Returns the winner's number, such as "24.31" or "24.31 ± 0.42 (mean of 3 seeds, 95 % interval)"; "" if no run has
// one.
std::string headline_value(const Comparison& c);

// Returns table rows for a terminal, one per run: {"RUN", "STATE", ...}. The winner is marked by *.
std::vector<std::vector<std::string>> comparison_rows(const std::vector<Report>& runs, const Comparison& c);

// How much of a sweep's result is explained by one axis alone.

struct Importance {
  std::string axis;
  double share = 0;   // 0 to 1: variance of the means per axis value, divided by the total variance
  double chance = 0;  // expected share if values are assigned at random: (values - 1) / (points - 1)
};

// Computes the correlation ratio (eta squared) of a one-way analysis of variance for each axis. `places` contains the
// value of each axis for each of `values`. Leaves out axes with a single value, and axes whose values are all
// different, because no share can be estimated. Empty if fewer than three points have a value, or if all values are
// equal.
std::vector<Importance> importance_of(const std::vector<std::string>& axes,
                                      const std::vector<std::vector<std::string>>& places,
                                      const std::vector<double>& values);

}  // namespace lmx::app::report
