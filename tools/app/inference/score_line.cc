#include "app/inference/score_line.h"

#include <cstdio>

#include "base/json_object.h"

namespace lmx::train {

std::string score_line(int64_t line, double sum, int64_t tokens, bool json) {
  const double mean = tokens > 0 ? sum / static_cast<double>(tokens) : sum;
  if (json) return JsonObject().add("line", line).add("mean", mean).add("sum", sum).add("tokens", tokens).text() + "\n";
  char text[96];
  std::snprintf(text, sizeof text, "%.6f\t%.6f\t%lld\n", mean, sum, static_cast<long long>(tokens));
  return text;
}

}  // namespace lmx::train
