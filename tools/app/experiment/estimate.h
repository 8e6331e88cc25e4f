// The uncertainty of a number that formulas compute from runs: its standard error over runs that are averaged, such as
// seeds.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "app/experiment/measure.h"

namespace lmx::app::experiment {

struct Estimate {
  double value = 0;
  // Standard error of `value` (jackknife: each run of a row with several runs is left out once, or in a
  // paired experiment all runs of one seed together; for a mean of n runs this is their standard deviation / sqrt(n)).
  // 0: nothing varies, or no row has several runs.
  double error = 0;
  double freedom = INFINITY;  // degrees of freedom of `error`, by Welch and Satterthwaite
  size_t runs = 0;            // of the row with the fewest, of those with several; 0: none
  // Cells that are the only run in their row, for a measure that depends on chance. `error` lacks their contribution.
  std::vector<std::string> single;
  bool planned = false;  // a number of the planner is part of it
};

// Evaluates `formula` over `scope`. UserError: the errors of `formula`.
Estimate estimate(const ResultScope& scope, const std::function<double(const Scope&)>& formula);

// The same for the mean of `samples`, without what the measure depends on.
Estimate estimate_of_mean(const std::vector<Sample>& samples);

// "0.978 ± 0.012"; without ± if the error is 0.
std::string estimate_text(const Estimate& e, int64_t digits);

// The position of a number relative to a bound.
enum class Standing { holds, open, fails };

// A statistical test of a claim or of a cell: Student's t at 5 %, two-sided, corrected for all tests of a table.
struct TTest {
  double p = 0;                      // of what the numbers say; 0: they do not vary. 1: their spread is not known
  bool fails = false;                // what they say: the claim does not hold
  double adjusted = 0;               // by Holm's method
  double t = 0, freedom = INFINITY;  // of p
  size_t runs = 0;                   // of a row (Estimate::runs)
  Standing standing() const;
  // About how many runs each row needs for an adjusted p of 5 %, if mean and spread do not change; 0: unknown, or
  // more than kMostRuns. `comparisons`: of the table.
  size_t runs_needed(size_t comparisons) const;
  static constexpr size_t kMostRuns = 1000;
};

// Tests the distance to a bound, which is below 0 on the wrong side.
TTest test_of(const Estimate& margin);
// Joins the tests of a claim that holds only if all of its parts do. The claim then has the largest p of its parts. It
// fails with the least p of the parts that fail, times the number of parts (Bonferroni).
TTest joined_test(const std::vector<TTest>& parts);
// Computes `adjusted` of all tests of a table. Returns how many of them depend on chance.
size_t adjust(const std::vector<TTest*>& tests);

}  // namespace lmx::app::experiment
