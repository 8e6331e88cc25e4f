// Functions that the benchmarks share.
#pragma once

#include <chrono>
#include <cmath>

namespace lmx_cli {

using BenchClock = std::chrono::steady_clock;

inline double seconds_since(BenchClock::time_point start) {
  return std::chrono::duration<double>(BenchClock::now() - start).count();
}

// Rounds `value` to a multiple of 1 / parts, for a JSON line.
inline double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

}  // namespace lmx_cli
