// How sure a number is that formulas make of runs: its standard error over the runs that are averaged, as seeds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/experiment/measure.h"

namespace lmx_cli::experiments {

struct Estimate {
  double value = 0;
  // Standard error of `value` (jackknife: each run of a row of several is left out once; for a mean of n runs that is
  // their standard deviation / sqrt(n)). 0: nothing varies, or no row has several runs.
  double error = 0;
  // Cells that are the only run of a measure in which chance has a part: `error` lacks their share.
  std::vector<std::string> single;
};

// `formula` over `scope`. UserError: what `formula` throws.
Estimate estimate(const ResultScope& scope, const std::function<double(const Scope&)>& formula);

// Standard error of the mean of `samples`; 0 of a single one.
double error_of_mean(const std::vector<Sample>& samples);

// "0.978 ± 0.012"; without ± if the error is 0.
std::string estimate_text(const Estimate& e, int64_t digits);

// Where a number is beside a bound.
enum class Standing { holds, open, fails };
// `margin`: how far it is on the right side (below 0: on the wrong one). open: less than two standard errors either
// way.
Standing standing(double margin, double error);

}  // namespace lmx_cli::experiments
