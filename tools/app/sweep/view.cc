#include "app/sweep/view.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/points/journal.h"
#include "app/points/store.h"
#include "app/sweep/table.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx_cli::sweeps {
namespace {

// Returns the values of an axis; for an interval the sampled values in increasing order.
std::vector<std::string> values_of(const Plan& plan, size_t axis) {
  if (!plan.axes[axis].interval) return plan.axes[axis].values;
  std::vector<std::string> values;
  for (const Point& point : plan.points) values.push_back(point.place[axis]);
  std::sort(values.begin(), values.end(), [](const std::string& a, const std::string& b) {
    return lmx::parse_double(a).value_or(0) < lmx::parse_double(b).value_or(0);
  });
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

bool has_records(const std::string& run) {
  std::error_code error;
  return std::filesystem::exists(run + "/metrics.jsonl", error) &&
         std::filesystem::exists(run + "/provenance.json", error);
}

}  // namespace

SweepReport read_sweep(const std::string& directory) {
  const Folder folder{directory};
  const Plan plan = read_plan(folder);
  const Standing standing = read_standing(plan, directory);
  SweepReport report;
  report.view.metric = plan.request.metric.text();
  report.view.lower_is_better = !plan.request.metric.maximize;
  for (size_t a = 0; a < plan.axes.size(); ++a) report.view.axes.push_back({plan.axes[a].name, values_of(plan, a)});
  for (size_t p = 0; p < plan.points.size(); ++p) {
    const Point& point = plan.points[p];
    const State& s = standing.states[p];
    const std::string outcome = s.outcome == Outcome::none ? (s.begun ? "begun" : "waiting") : name_of(s.outcome);
    // As in the table: the last number of a diverged or stopped run is not a value of the metric.
    const double value = s.outcome == Outcome::done ? s.value.value_or(NAN) : NAN;
    reports::SweepView::Point shown{point.place, outcome, value, -1};
    if (has_records(folder.run(point))) {
      try {
        report.runs.push_back(reports::read_report(folder.run(point)));
        shown.run = static_cast<int64_t>(report.runs.size()) - 1;
      } catch (const lmx::UserError& e) {
        lmx::log_warn(lmx::str("point ", point.id, " is left out of the curves: ", e.what()));
      }
    }
    report.view.points.push_back(std::move(shown));
  }
  report.summary = summarise(plan, standing.states);
  return report;
}

}  // namespace lmx_cli::sweeps
