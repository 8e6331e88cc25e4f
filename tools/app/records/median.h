// The median of measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace lmx_cli {

// REQUIRES: `values` is not empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace lmx_cli
