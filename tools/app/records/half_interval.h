// The uncertainty of a mean, and what is significant at 5 %.
#pragma once

#include <optional>
#include <vector>

namespace lmx::app {

// Returns half the width of the 95 % confidence interval of the mean by Student's t: t(0.975, n - 1) s / sqrt(n).
// Returns nothing if there are fewer than two values.
std::optional<double> half_interval(const std::vector<double>& values);

// REQUIRES: at least one value.
double mean_of(const std::vector<double>& values);
// The standard deviation with n - 1 in the denominator. REQUIRES: at least two values.
double deviation_of(const std::vector<double>& values);

// The difference of two means.
struct Difference {
  double mean = 0;                      // the mean of b, minus that of a
  std::optional<double> half_interval;  // of its 95 % interval; nothing if the spread is not known
  // Whether it is significant at 5 % (two-sided), so that its interval does not contain 0.
  std::optional<bool> significant() const;
};
// By Welch's t-test. There is no interval if one has fewer than two values. REQUIRES: each has a value.
Difference difference_of_means(const std::vector<double>& a, const std::vector<double>& b);
// By the t-test of pairs: a[i] and b[i] have the same seed. There is no interval if there are fewer than two pairs.
// REQUIRES: as many values in both, at least one.
Difference difference_of_pairs(const std::vector<double>& a, const std::vector<double>& b);

// The probability that Student's t with these degrees of freedom is at least `t` away from 0 (two-sided). REQUIRES:
// freedom > 0.
double students_p(double t, double freedom);

// Adjusts the p-values of several tests by Holm's method, in place: the probability that any true hypothesis is
// rejected is at most 5 % if those with an adjusted value of at most 0.05 are rejected.
void adjust_by_holm(std::vector<double>& p);

inline constexpr double kSignificant = 0.05;

}  // namespace lmx::app
