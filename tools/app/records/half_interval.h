// The uncertainty of a mean.
#pragma once

#include <optional>
#include <vector>

namespace lmx_cli {

// Returns half the width of the 95 % confidence interval of the mean by Student's t: t(0.975, n - 1) s / sqrt(n).
// Returns nothing if there are fewer than two values.
std::optional<double> half_interval(const std::vector<double>& values);

}  // namespace lmx_cli
