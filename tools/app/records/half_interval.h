// The uncertainty of a mean, and what is significant at 5 %.
#pragma once

#include <optional>
#include <vector>

namespace lmx_cli {

// Returns half the width of the 95 % confidence interval of the mean by Student's t: t(0.975, n - 1) s / sqrt(n).
// Returns nothing if there are fewer than two values.
std::optional<double> half_interval(const std::vector<double>& values);

// REQUIRES: at least one value.
double mean_of(const std::vector<double>& values);
// The standard deviation with n - 1 in the denominator. REQUIRES: at least two values.
double deviation_of(const std::vector<double>& values);

// Returns whether the means differ significantly at 5 % (Welch's t-test, two-sided). Nothing if one has fewer than two
// values, so that its spread is not known.
std::optional<bool> means_differ(const std::vector<double>& a, const std::vector<double>& b);

// The probability that Student's t with these degrees of freedom is at least `t` away from 0 (two-sided). REQUIRES:
// freedom > 0.
double students_p(double t, double freedom);

// Adjusts the p-values of several tests by Holm's method, in place: the probability that any true hypothesis is
// rejected is at most 5 % if those with an adjusted value of at most 0.05 are rejected.
void adjust_by_holm(std::vector<double>& p);

inline constexpr double kSignificant = 0.05;

}  // namespace lmx_cli
