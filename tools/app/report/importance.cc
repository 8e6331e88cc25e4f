#include "app/report/importance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "app/records/half_interval.h"

namespace lmx_cli::reports {
namespace {

double squares_about(const std::vector<double>& values, double centre) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [&](double sum, double v) { return sum + (v - centre) * (v - centre); });
}

}  // namespace

std::vector<Importance> importance_of(const std::vector<std::string>& axes,
                                      const std::vector<std::vector<std::string>>& places,
                                      const std::vector<double>& values) {
  std::vector<size_t> points;
  std::vector<double> finite;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    points.push_back(i);
    finite.push_back(values[i]);
  }
  if (points.size() < 3) return {};
  const double mean = mean_of(finite), all = squares_about(finite, mean);
  if (!(all > 0)) return {};
  std::vector<Importance> shares;
  for (size_t a = 0; a < axes.size(); ++a) {
    std::map<std::string, std::vector<double>> by_value;
    for (const size_t i : points) by_value[places[i][a]].push_back(values[i]);
    if (by_value.size() < 2 || by_value.size() == points.size()) continue;
    double between = 0;
    for (const auto& [name, group] : by_value)
      between += static_cast<double>(group.size()) * std::pow(mean_of(group) - mean, 2);
    shares.push_back(
        {axes[a], between / all, static_cast<double>(by_value.size() - 1) / static_cast<double>(points.size() - 1)});
  }
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  return shares;
}

}  // namespace lmx_cli::reports
