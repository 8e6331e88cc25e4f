// Functions that the benchmarks share.
#pragma once

#include <chrono>
#include <cmath>

#include "base/clock.h"

namespace lmx_cli {

using BenchClock = std::chrono::steady_clock;

using lmx::seconds_since;

// Rounds `value` to a multiple of 1 / parts, for a JSON line.
inline double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

}  // namespace lmx_cli
