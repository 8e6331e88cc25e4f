// At which bandwidth a method reaches its loss sooner than another one, the base, that sends more.
//
// In the time of a whole run of a method, the base makes only a part f of its steps if its step takes 1/f as long. So
// runs of the base with fewer steps, each with its whole learning-rate schedule, show what the base reaches in equal
// time. The method pays where the planned ratio of the times of a step is less than the part of the base's steps after
// which both have the same loss.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/experiment/cells.h"

namespace lmx::app::experiment {

struct Results;

// Planned seconds of a step by the bandwidth between nodes in Gbit/s, ascending.
using StepCurve = std::vector<std::pair<double, double>>;

// The curve of each method of the cells; empty without `break_even`. UserError with the place in the experiment's file:
// a recipe or machine that does not exist, ranks that fit into one node, a method that does not fit into its memory.
std::map<std::string, StepCurve> step_curves(const Experiment& experiment, const std::vector<Cell>& cells);

// A number and its confidence interval at 5 % for all rows together (Bonferroni). An end that is not finite lies
// outside of what was measured.
struct Between {
  double value = 0, low = 0, high = 0;
};

struct BreakEvenRow {
  std::string method, group = {};   // "-A-B" of the axes of `within`, which the rows of a group share
  std::vector<std::string> labels;  // of the row of the method
  size_t seeds = 0;                 // runs that are compared with those of the base
  Between part = {};                // of the base's tokens after which it has the same loss
  Between gbit_s = {};              // the method pays below this bandwidth
  StepCurve ratios = {};            // planned time of a step, relative to the base's, in the range of verdicts
  std::string verdict = {};
};
inline constexpr double kSlowestGbit = 0.1, kFastestGbit = 1000;  // the range of verdicts
inline constexpr int kPointsADecade = 10;                         // of `ratios`

// A row for each method that has runs with the same averaged values as the base, at its whole length and at shorter
// ones. `curves`: of step_curves().
std::vector<BreakEvenRow> break_even(const Results& results, const std::map<std::string, StepCurve>& curves);

// A chart for each group of rows, {name, SVG}: how long a method takes to its loss by the bandwidth, relative to the
// base.
std::vector<std::pair<std::string, std::string>> break_even_figures(const Results& results);

// The interval of the part of its steps after which the base has the loss of a method. `base`: for each seed, parts of
// the steps (ascending, the last is 1) and losses; `losses`: of the method, by the same seeds. Between two parts the
// loss is linear in their logarithm. `rows`: how many rows are compared. An end is 0 or infinite if the least or the
// whole part does not decide.
Between equal_part(const std::vector<std::vector<std::pair<double, double>>>& base, const std::vector<double>& losses,
                   size_t rows);

// The bandwidth below which the ratio of both times of a step is less than `part`; 0 if it is so nowhere in the range
// of verdicts, infinite if everywhere.
double bandwidth_of(const StepCurve& method, const StepCurve& base, double part);

}  // namespace lmx::app::experiment
