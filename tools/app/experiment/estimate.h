// The uncertainty of a number that formulas compute from runs: its standard error over runs that are averaged, such as
// seeds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/experiment/measure.h"

namespace lmx_cli::experiments {

struct Estimate {
  double value = 0;
  // Standard error of `value` (jackknife: each run of a row with several runs is left out once; for a mean of n runs
  // this is their standard deviation / sqrt(n)). 0: nothing varies, or no row has several runs.
  double error = 0;
  // Cells that are the only run in their row, for a measure that depends on chance. `error` lacks their contribution.
  std::vector<std::string> single;
  bool planned = false;  // a number of the planner is part of it
};

// Evaluates `formula` over `scope`. UserError: the errors of `formula`.
Estimate estimate(const ResultScope& scope, const std::function<double(const Scope&)>& formula);

// Returns the standard error of the mean of `samples`; 0 for a single sample.
double error_of_mean(const std::vector<Sample>& samples);

// "0.978 ± 0.012"; without ± if the error is 0.
std::string estimate_text(const Estimate& e, int64_t digits);

// The position of a number relative to a bound.
enum class Standing { holds, open, fails };
// `margin`: the distance to the bound, below 0 on the wrong side. `open`: the distance is less than two standard
// errors.
Standing standing(double margin, double error);

}  // namespace lmx_cli::experiments
