#include "app/plan/bandwidth.h"

#include <cmath>

namespace lmx::plan {
namespace {

// From 1 Mbit/s to 1 TB/s.
constexpr double kSlowest = 1.25e-4, kFastest = 1000;
constexpr int kPoints = 240, kCurveStep = 4;  // a curve has a point for each fourth step

double at(int i) {
  return kSlowest * std::pow(kFastest / kSlowest, static_cast<double>(i) / kPoints);
}

struct Field {
  const Plan& plan;
  std::vector<std::pair<std::string, const Case*>> variants;
  std::vector<double> speeds;  // of the variants

  double tokens_s(size_t v, double gb_s) const { return variants[v].second->row(speeds[v], gb_s).tokens_s(); }
  // The fastest variant, or `before` if it is as fast: variants that exchange the same are equal.
  size_t fastest(double gb_s, size_t before) const {
    size_t best = before;
    double most = tokens_s(before, gb_s);
    for (size_t v = 0; v < variants.size(); ++v) {
      const double own = v == before ? 0 : tokens_s(v, gb_s);
      if (own > most * (1 + 1e-9)) best = v, most = own;
    }
    return best;
  }
  double crossing(size_t below, size_t above, double low, double high) const {
    for (int i = 0; i < 40; ++i) {
      const double middle = std::sqrt(low * high);
      (tokens_s(below, middle) >= tokens_s(above, middle) ? low : high) = middle;
    }
    return low;
  }
};

}  // namespace

void add_bandwidths(Plan& plan, const std::vector<std::pair<std::string, const Case*>>& variants) {
  Field field{plan, {}, {}};
  int step = 1;
  for (const Row& row : plan.rows) {
    if (row.ranks != variants[0].second->ranks()) continue;
    if (row.workers) step = kCurveStep;  // each of their rows is a simulation
    if (row.out_of_memory) continue;
    for (const auto& variant : variants)
      if (variant.first == row.variant) field.variants.push_back(variant);
    field.speeds.push_back(row.speed);
  }
  if (field.variants.empty() || variants[0].second->one_node()) return;
  const int ranks = variants[0].second->ranks();
  for (size_t v = 0; v < field.variants.size(); ++v) {
    Curve curve{field.variants[v].first, ranks, {}};
    for (int i = 0; i <= kPoints; i += kCurveStep) curve.points.emplace_back(at(i), field.tokens_s(v, at(i)));
    plan.curves.push_back(std::move(curve));
  }
  size_t best = field.fastest(at(0), 0);
  for (int i = step; i <= kPoints; i += step) {
    const size_t next = field.fastest(at(i), best);
    if (next == best) continue;
    plan.crossings.push_back({ranks, field.variants[best].first, field.variants[next].first,
                              field.crossing(best, next, at(i - step), at(i))});
    best = next;
  }
}

}  // namespace lmx::plan
