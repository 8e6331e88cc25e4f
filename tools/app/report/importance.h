// How much of a sweep's result is explained by one axis alone.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli::reports {

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

}  // namespace lmx_cli::reports
