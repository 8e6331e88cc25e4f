// Functions that the benchmarks share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace lmx_cli {

using BenchClock = std::chrono::steady_clock;

inline double seconds_since(BenchClock::time_point start) {
  return std::chrono::duration<double>(BenchClock::now() - start).count();
}

// REQUIRES: `values` is not empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Rounds `value` to a multiple of 1 / parts, for a JSON line.
inline double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

}  // namespace lmx_cli
