// The uncertainty of a mean.
#pragma once

#include <optional>
#include <vector>

namespace lmx_cli {

// Returns half the width of the 95 % confidence interval of the mean by Student's t: t(0.975, n - 1) s / sqrt(n).
// Returns nothing if there are fewer than two values.
std::optional<double> half_interval(const std::vector<double>& values);

double mean_of(const std::vector<double>& values);
// The standard deviation with n - 1 in the denominator. REQUIRES: at least two values.
double deviation_of(const std::vector<double>& values);

// Returns whether the means differ significantly at 5 % (Welch's t-test, two-sided). Nothing if one has fewer than two
// values, so that its spread is not known.
std::optional<bool> means_differ(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace lmx_cli
