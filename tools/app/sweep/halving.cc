#include "app/sweep/journal.h"

#include <algorithm>
#include <map>
#include <optional>

#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

struct Configuration {
  std::vector<size_t> paused;
  double sum = 0;
  int64_t values = 0;
  bool bad = false;  // a point of the configuration has no value
  double mean() const { return sum / static_cast<double>(values); }
};

std::map<size_t, Configuration> configurations(const Plan& plan, const std::vector<State>& states) {
  std::map<size_t, Configuration> all;
  for (size_t p = 0; p < plan.points.size(); ++p) {
    Configuration& c = all[plan.points[p].configuration];
    const State& s = states[p];
    if (s.outcome == Outcome::paused) c.paused.push_back(p);
    const bool good = s.value && (s.outcome == Outcome::paused || s.outcome == Outcome::done);
    if (!good) {
      c.bad = true;
      continue;
    }
    c.sum += *s.value;
    ++c.values;
  }
  return all;
}

}  // namespace

int64_t rung_step(const Plan& plan, const Journal& journal) {
  const Halving& h = plan.request.halving;
  if (h.eta == 0) return 0;
  // Configurations with a point that can still continue.
  std::map<size_t, bool> open;
  int64_t longest = 0;
  for (size_t p = 0; p < plan.points.size(); ++p) {
    if (journal.state(p).ended()) continue;
    open[plan.points[p].configuration] = true;
    longest = std::max(longest, plan.points[p].steps);
  }
  int64_t step = h.min;
  for (int64_t k = 0; k < journal.rungs(); ++k) step *= h.eta;
  const bool beyond = longest > 0 && step >= longest;
  return open.size() < 2 || beyond ? 0 : step;
}

std::string why_no_rung(const Plan& plan) {
  const Halving& h = plan.request.halving;
  if (h.eta == 0 || plan.points.empty()) return "";
  if (plan.points.back().configuration == 0) return "there is one configuration, and seeds do not compete";
  const auto shorter = [](const Point& a, const Point& b) { return a.steps < b.steps; };
  const int64_t longest = std::max_element(plan.points.begin(), plan.points.end(), shorter)->steps;
  if (longest == 0 || h.min < longest) return "";
  return lmx::str("all points have ended by then: min is ", h.min, ", train.steps ", longest);
}

std::vector<size_t> losers(const Plan& plan, const std::vector<State>& states) {
  std::vector<Configuration> alive;
  for (auto& [index, c] : configurations(plan, states))
    if (!c.paused.empty()) alive.push_back(c);
  std::stable_sort(alive.begin(), alive.end(), [&](const Configuration& a, const Configuration& b) {
    if (a.bad != b.bad) return b.bad;
    return !a.bad && plan.request.metric.better(a.mean(), b.mean());
  });
  const size_t keep = std::max<size_t>(1, alive.size() / static_cast<size_t>(plan.request.halving.eta));
  std::vector<size_t> points;
  for (size_t i = keep; i < alive.size(); ++i)
    points.insert(points.end(), alive[i].paused.begin(), alive[i].paused.end());
  std::sort(points.begin(), points.end());
  return points;
}

}  // namespace lmx_cli::sweeps
