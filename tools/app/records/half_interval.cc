#include "app/records/half_interval.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

namespace lmx_cli {

std::optional<double> half_interval(const std::vector<double>& values) {
  if (values.size() < 2) return {};
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return boost::math::quantile(boost::math::students_t(n - 1), 0.975) * std::sqrt(squares / (n - 1) / n);
}

}  // namespace lmx_cli
