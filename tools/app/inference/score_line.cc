#include "app/inference/score_line.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "lmx/error.h"
#include "runfiles/metrics.h"

namespace lmx::train {

std::string score_line(int64_t line, double sum, int64_t tokens, bool json) {
  const double mean = tokens > 0 ? sum / static_cast<double>(tokens) : sum;
  if (json) return str("{\"line\":", line, json_values({{"mean", mean}, {"sum", sum}}), ",\"tokens\":", tokens, "}\n");
  char text[96];
  std::snprintf(text, sizeof text, "%.6f\t%.6f\t%lld\n", mean, sum, static_cast<long long>(tokens));
  return text;
}

}  // namespace lmx::train
