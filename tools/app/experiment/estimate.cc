#include "app/experiment/estimate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "app/records/half_interval.h"
#include "base/text.h"

namespace lmx::app::experiment {
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
    if (n > 1) e.runs = e.runs == 0 ? groups.size() : std::min(e.runs, groups.size());
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
  if (e.error > 0) e.freedom = n - 1, e.runs = samples.size();
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

size_t TTest::runs_needed(size_t comparisons) const {
  if (runs < 2 || p <= 0) return 0;
  const double correction = adjusted < 1 ? adjusted / p : static_cast<double>(comparisons);
  for (size_t n = runs + 1; n <= kMostRuns; ++n) {
    const double more = static_cast<double>(n) / static_cast<double>(runs),
                 freer = static_cast<double>(n - 1) / static_cast<double>(runs - 1);
    if (correction * students_p(t * std::sqrt(more), freedom * freer) <= kSignificant) return n;
  }
  return 0;
}

TTest test_of(const Estimate& margin) {
  TTest test{.fails = !(margin.value >= 0), .freedom = margin.freedom, .runs = margin.runs};
  if (std::isnan(margin.value) || !(margin.error > 0)) return test;  // the error may be NaN
  test.t = margin.value / margin.error;
  test.p = students_p(test.t, test.freedom);
  return test;
}

TTest joined_test(const std::vector<TTest>& parts) {
  const auto below = [](const TTest& a, const TTest& b) { return a.p < b.p; };
  std::vector<TTest> failing;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(failing), [](const TTest& t) { return t.fails; });
  if (failing.empty()) return *std::max_element(parts.begin(), parts.end(), below);
  TTest all = *std::min_element(failing.begin(), failing.end(), below);
  all.p = std::min(1.0, all.p * static_cast<double>(parts.size()));
  return all;
}

size_t adjust(const std::vector<TTest*>& tests) {
  std::vector<double> p;
  for (const TTest* test : tests) p.push_back(test->p);
  adjust_by_holm(p);
  for (size_t i = 0; i < tests.size(); ++i) tests[i]->adjusted = p[i];
  return static_cast<size_t>(std::count_if(tests.begin(), tests.end(), [](const TTest* t) { return t->p > 0; }));
}

}  // namespace lmx::app::experiment
