#include "app/experiment/estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "app/records/half_interval.h"
#include "base/text.h"

namespace lmx_cli::experiments {
namespace {

// Runs that the jackknife leaves out together, by row and value of the averaged axes.
using Group = std::set<std::string>;
using Groups = std::map<std::string, std::map<std::string, Group>>;

// The rows as one, in which a group has the runs of all rows with one value; nothing if the rows have different values.
std::optional<Groups> paired(const Groups& rows) {
  Groups joined;
  for (const auto& [row, groups] : rows)
    for (const auto& [place, cells] : groups) joined[""][place].insert(cells.begin(), cells.end());
  for (const auto& [row, groups] : rows)
    if (groups.size() != joined[""].size()) return std::nullopt;
  return joined;
}

}  // namespace

Estimate estimate(const ResultScope& scope, const std::function<double(const Scope&)>& formula) {
  std::vector<ResultScope::Use> uses;
  Estimate e;
  e.value = formula(scope.recording(uses));
  std::set<std::string> single;
  Groups rows;  // runs of each row that has several
  for (const ResultScope::Use& use : uses) {
    e.planned |= use.planned;
    if (use.cells.size() > 1)
      for (size_t i = 0; i < use.cells.size(); ++i) rows[use.row][use.places[i]].insert(use.cells[i]);
    else if (use.chance && !use.planned)
      single.insert(use.cells[0]);
  }
  e.single.assign(single.begin(), single.end());
  if (scope.paired()) rows = paired(rows).value_or(rows);
  double variance = 0, quotient = 0;
  for (const auto& [row, groups] : rows) {
    std::vector<Sample> without;
    for (const auto& [place, cells] : groups) without.push_back({0, formula(scope.without(cells))});
    const double n = static_cast<double>(groups.size()), deviation = spread(without);
    const double part = deviation * deviation * (n - 1) * (n - 1) / n;
    variance += part;
    if (n > 1) quotient += part * part / (n - 1);
  }
  e.error = std::sqrt(variance);
  if (quotient > 0) e.freedom = variance * variance / quotient;
  return e;
}

Estimate estimate_of_mean(const std::vector<Sample>& samples) {
  const auto n = static_cast<double>(samples.size());
  Estimate e;
  e.value = mean(samples);
  e.error = n > 1 ? spread(samples) / std::sqrt(n) : 0;
  if (e.error > 0) e.freedom = n - 1;
  return e;
}

std::string estimate_text(const Estimate& e, int64_t digits) {
  const std::string value = number_text(e.value, digits);
  return e.error > 0 ? value + " ± " + number_text(e.error, 2) : value;
}

Standing TTest::standing() const {
  if (adjusted > kSignificant) return Standing::open;
  return fails ? Standing::fails : Standing::holds;
}

TTest test_of(const Estimate& margin) {
  TTest test{.fails = !(margin.value >= 0)};
  if (!std::isnan(margin.value) && margin.error > 0) test.p = students_p(margin.value / margin.error, margin.freedom);
  return test;
}

TTest joined_test(const std::vector<TTest>& parts) {
  TTest all;
  double largest = 0, least = 1;
  for (const TTest& part : parts) {
    all.fails |= part.fails;
    largest = std::max(largest, part.p);
    if (part.fails) least = std::min(least, part.p);
  }
  all.p = all.fails ? std::min(1.0, least * static_cast<double>(parts.size())) : largest;
  return all;
}

size_t adjust(const std::vector<TTest*>& tests) {
  std::vector<double> p;
  for (const TTest* test : tests) p.push_back(test->p);
  adjust_by_holm(p);
  for (size_t i = 0; i < tests.size(); ++i) tests[i]->adjusted = p[i];
  return static_cast<size_t>(std::count_if(tests.begin(), tests.end(), [](const TTest* t) { return t->p > 0; }));
}

}  // namespace lmx_cli::experiments
