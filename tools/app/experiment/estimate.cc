#include "app/experiment/estimate.h"

#include <cmath>
#include <map>
#include <set>

#include "base/text.h"

namespace lmx_cli::experiments {

Estimate estimate(const ResultScope& scope, const std::function<double(const Scope&)>& formula) {
  std::vector<ResultScope::Use> uses;
  Estimate e;
  e.value = formula(scope.recording(uses));
  std::set<std::string> single;
  std::map<std::string, std::set<std::string>> rows;  // runs of each row that has several
  for (const ResultScope::Use& use : uses) {
    e.planned |= use.planned;
    if (use.cells.size() > 1)
      rows[use.row].insert(use.cells.begin(), use.cells.end());
    else if (use.chance && !use.planned)
      single.insert(use.cells[0]);
  }
  e.single.assign(single.begin(), single.end());
  double variance = 0;
  for (const auto& [row, cells] : rows) {
    std::vector<Sample> without;
    for (const std::string& cell : cells) without.push_back({0, formula(scope.without(cell))});
    const double n = static_cast<double>(cells.size()), deviation = spread(without);
    variance += deviation * deviation * (n - 1) * (n - 1) / n;
  }
  e.error = std::sqrt(variance);
  return e;
}

double error_of_mean(const std::vector<Sample>& samples) {
  return samples.empty() ? 0 : spread(samples) / std::sqrt(static_cast<double>(samples.size()));
}

std::string estimate_text(const Estimate& e, int64_t digits) {
  const std::string value = number_text(e.value, digits);
  return e.error > 0 ? value + " ± " + number_text(e.error, 2) : value;
}

Standing standing(double margin, double error) {
  if (std::isnan(margin)) return Standing::fails;
  if (std::fabs(margin) < 2 * error) return Standing::open;
  return margin >= 0 ? Standing::holds : Standing::fails;
}

}  // namespace lmx_cli::experiments
