#include "app/records/half_interval.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

namespace lmx::app {
namespace {

// Half of a two-sided interval of 95 %, in standard errors.
double errors_of_95(double freedom) {
  return boost::math::quantile(boost::math::students_t(freedom), 1 - kSignificant / 2);
}

}  // namespace

// Sums differences from the first value, so that equal values have exactly their mean, and a deviation of 0.
double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v - values.front();
  return values.front() + sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / (static_cast<double>(values.size()) - 1));
}

std::optional<double> half_interval(const std::vector<double>& values) {
  if (values.size() < 2) return {};
  const auto n = static_cast<double>(values.size());
  return errors_of_95(n - 1) * deviation_of(values) / std::sqrt(n);
}

std::optional<bool> Difference::significant() const {
  if (!half_interval) return {};
  return std::fabs(mean) > *half_interval;
}

Difference difference_of_means(const std::vector<double>& a, const std::vector<double>& b) {
  Difference difference{mean_of(b) - mean_of(a), {}};
  if (a.size() < 2 || b.size() < 2) return difference;
  const auto squared_error = [](const std::vector<double>& v) {
    const double deviation = deviation_of(v);
    return deviation * deviation / static_cast<double>(v.size());
  };
  const double ea = squared_error(a), eb = squared_error(b);
  // Welch and Satterthwaite's degrees of freedom.
  const double freedom = (ea + eb) * (ea + eb) /
                         (ea * ea / static_cast<double>(a.size() - 1) + eb * eb / static_cast<double>(b.size() - 1));
  difference.half_interval = ea + eb == 0 ? 0 : errors_of_95(freedom) * std::sqrt(ea + eb);
  return difference;
}

Difference difference_of_pairs(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(b[i] - a[i]);
  return {mean_of(differences), half_interval(differences)};
}

double students_p(double t, double freedom) {
  return 2 * boost::math::cdf(boost::math::complement(boost::math::students_t(freedom), std::fabs(t)));
}

void adjust_by_holm(std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  double least = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    double& value = p[order[i]];
    value = least = std::max(least, std::min(1.0, value * static_cast<double>(order.size() - i)));
  }
}

}  // namespace lmx::app
