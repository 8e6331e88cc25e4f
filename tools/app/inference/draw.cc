#include "app/inference/draw.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "app/inference/generate.h"
#include "lmx/error.h"

namespace lmx::train {
namespace {

// Orders ids by their logits, largest first.
struct Likelier {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  }
};

// Keeps the likeliest ids of `order` whose probabilities sum up to `top_p`, but at least one.
void keep_top_p(std::vector<int32_t>& order, std::span<const float> logits, const GenerateOptions& options) {
  const auto logit = [&](int32_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  std::sort(order.begin(), order.end(), Likelier{logits});
  const auto weight = [&](int32_t id) { return std::exp((logit(id) - logit(order[0])) / options.temperature); };
  double sum = 0, kept = 0;
  for (const int32_t id : order) sum += weight(id);
  size_t count = 0;
  while (count < order.size() && (count == 0 || kept < options.top_p * sum)) kept += weight(order[count++]);
  order.resize(count);
  std::sort(order.begin(), order.end());
}

}  // namespace

int32_t draw_token(std::span<const float> logits, int32_t first, const GenerateOptions& options, double uniform) {
  LMX_CHECK(static_cast<size_t>(first) < logits.size(), "ids from ", first, " of ", logits.size(), " logits");
  std::vector<int32_t> order(logits.size() - static_cast<size_t>(first));
  std::iota(order.begin(), order.end(), first);
  const Likelier likelier{logits};
  if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + options.top_k - 1, order.end(), likelier);
    order.resize(static_cast<size_t>(options.top_k));
    std::sort(order.begin(), order.end());  // nth_element leaves an order that may differ between standard libraries
  }
  if (options.top_p < 1) keep_top_p(order, logits, options);
  float top = -INFINITY;
  for (const int32_t id : order) top = std::max(top, logits[static_cast<size_t>(id)]);
  std::vector<double> sums(order.size());
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i)
    sums[i] = sum += std::exp((static_cast<double>(logits[static_cast<size_t>(order[i])]) - top) / options.temperature);
  const auto at = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
  return order[std::min(static_cast<size_t>(at - sums.begin()), order.size() - 1)];
}

}  // namespace lmx::train
