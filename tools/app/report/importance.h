// How much of a sweep's result follows from one axis alone.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli::reports {

struct Importance {
  std::string axis;
  double share = 0;   // 0 to 1: variance of the metric's means over the axis' values, of the variance over all points
  double chance = 0;  // the share that values drawn at random would have on average: (values - 1) / (points - 1)
};

// The correlation ratio (eta squared) of one-way analysis of variance, for each axis; `places` has a value of each axis
// for each of `values`. An axis whose values are all different has no share to estimate and is left out, as is one of a
// single value. Empty if fewer than three points have a value or all values are equal.
std::vector<Importance> importance_of(const std::vector<std::string>& axes,
                                      const std::vector<std::vector<std::string>>& places,
                                      const std::vector<double>& values);

}  // namespace lmx_cli::reports
