#include "app/report/curves.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "app/report/report.h"

namespace lmx_cli::reports {
namespace {

bool is_axis(const std::string& key) {
  static const std::set<std::string> kAxes{"tokens", "epoch", "steps", "rank"};
  return kAxes.contains(key);
}

// Returns whether a record contains the sum over its steps.
bool is_sum_over_window(const std::string& key) {
  static const std::set<std::string> kSums{
      "comm_sent_bytes", "comm_received_bytes", "comm_sent_between_nodes_bytes", "comm_received_between_nodes_bytes",
      "comm_s",          "comm_exposed_s"};
  return kSums.contains(key);
}

bool is_curve(const RunRecord& record, const std::string& key) {
  if (key.find('/') == std::string::npos) return !is_axis(key);
  return record.split == "train" && is_strategy_key(key);
}

// Orders NaN after all numbers. NaNs are drawn as gaps, so one NaN of a section must be kept.
bool less(double a, double b) {
  return std::isnan(b) ? !std::isnan(a) : a < b;
}

std::vector<size_t> kept(const std::vector<double>& y, size_t most) {
  std::vector<size_t> keep;
  const size_t n = y.size(), stretches = std::max<size_t>(1, (most - 1) / 3);
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = s * n / stretches, end = (s + 1) * n / stretches;
    if (begin == end) continue;
    const auto [least, greatest] =
        std::minmax_element(y.begin() + static_cast<int64_t>(begin), y.begin() + static_cast<int64_t>(end), less);
    std::set<size_t> chosen{begin, static_cast<size_t>(least - y.begin()), static_cast<size_t>(greatest - y.begin())};
    keep.insert(keep.end(), chosen.begin(), chosen.end());
  }
  if (n > 0 && keep.back() != n - 1) keep.push_back(n - 1);
  return keep;
}

std::vector<double> at(const std::vector<double>& values, const std::vector<size_t>& places) {
  std::vector<double> chosen;
  for (const size_t i : places) chosen.push_back(values[i]);
  return chosen;
}

}  // namespace

std::vector<Curve> curves_of(const std::vector<RunRecord>& records) {
  std::map<std::pair<std::string, std::string>, Curve> curves;
  const std::vector<double> steps = window_steps(records);
  size_t window = 0;
  for (const RunRecord& r : records) {
    if (r.split == "rank" || r.split == "change") continue;
    const double length = r.split == "train" ? std::max(1.0, steps[window++]) : 1;
    for (const auto& [key, value] : r.values) {
      if (!is_curve(r, key)) continue;
      Curve& curve = curves[{r.split, key}];
      curve.split = r.split;
      curve.key = key;
      curve.x.push_back(static_cast<double>(r.step));
      curve.y.push_back(is_sum_over_window(key) ? value / length : value);
    }
  }
  std::vector<Curve> all;
  for (auto& [name, curve] : curves) all.push_back(std::move(curve));
  return all;
}

Clock clock_of(const std::vector<RunRecord>& records) {
  Clock clock;
  double hours = 0;
  int64_t before = 0;
  for (const RunRecord& r : records) {
    if (r.split != "train") continue;
    hours += r.at("step_s") * static_cast<double>(r.step - before) / 3600;
    before = r.step;
    clock.step.push_back(static_cast<double>(r.step));
    clock.tokens.push_back(r.at("tokens"));
    clock.epoch.push_back(r.at("epoch"));
    clock.hours.push_back(hours);
  }
  return clock;
}

Curve thinned(const Curve& curve, size_t most) {
  if (curve.y.size() <= most) return curve;
  const std::vector<size_t> places = kept(curve.y, most);
  return {curve.split, curve.key, at(curve.x, places), at(curve.y, places)};
}

Clock thinned(const Clock& clock, size_t most) {
  if (clock.step.size() <= most) return clock;
  std::vector<size_t> places;
  for (size_t i = 0; i < most; ++i) places.push_back(i * (clock.step.size() - 1) / (most - 1));
  return {at(clock.step, places), at(clock.tokens, places), at(clock.epoch, places), at(clock.hours, places)};
}

}  // namespace lmx_cli::reports
