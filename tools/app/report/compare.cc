#include "app/report/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "app/records/half_interval.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::report {
namespace {

// Returns the settings of a run as one text.
std::string configuration_key(const Report& run) {
  std::string key;
  for (const auto& [name, value] : run.config)
    if (is_setting(name)) key += str(name, '\n', value, '\n');
  return key;
}

// Returns whether `a` is better than `b`; NaN is never better.
bool better(double a, double b, bool lower_is_better) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return lower_is_better ? a < b : a > b;
}

// A second run with the same seed is a repetition, which shows nothing of the noise between seeds.
void group_runs(const std::vector<const Report*>& runs, Comparison& c) {
  std::map<std::string, size_t> known;
  std::set<std::pair<size_t, std::string>> counted;  // groups and seeds
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto [at, fresh] = known.try_emplace(configuration_key(*runs[i]), c.groups.size());
    if (fresh) c.groups.emplace_back();
    SeedGroup& group = c.groups[at->second];
    group.runs.push_back(i);
    if (!std::isnan(c.values[i]) && counted.emplace(at->second, seed_of(*runs[i])).second)
      group.values.push_back(c.values[i]);
    c.group_of.push_back(at->second);
  }
  for (SeedGroup& group : c.groups) {
    if (group.values.empty()) continue;
    group.mean =
        std::accumulate(group.values.begin(), group.values.end(), 0.0) / static_cast<double>(group.values.size());
    group.half_interval = half_interval(group.values);
  }
}

void find_best(Comparison& c) {
  double best = NAN;
  for (size_t g = 0; g < c.groups.size(); ++g) {
    if (!better(c.groups[g].mean, best, c.lower_is_better)) continue;
    best = c.groups[g].mean;
    c.best_group = static_cast<int64_t>(g);
  }
  if (c.best_group < 0) return;
  best = NAN;
  for (const size_t i : c.groups[static_cast<size_t>(c.best_group)].runs) {
    if (!better(c.values[i], best, c.lower_is_better)) continue;
    best = c.values[i];
    c.best_run = static_cast<int64_t>(i);
  }
}

std::string value_at(const std::optional<RunRecord>& record, const char* key) {
  return record && record->values.contains(key) ? format("%.6g", record->at(key)) : "";
}

}  // namespace

bool Setting::same() const {
  return std::all_of(values.begin(), values.end(), [&](const std::string& v) { return v == values[0]; });
}

std::vector<Setting> settings_of(const std::vector<const Report*>& runs) {
  std::vector<Setting> settings;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [key, value] : runs[i]->config) {
      const auto [at, fresh] = places.try_emplace(key, settings.size());
      if (fresh) settings.push_back({key, std::vector<std::string>(runs.size())});
      settings[at->second].values[i] = value;
    }
  }
  return settings;
}

std::string seed_of(const Report& run) {
  for (const auto& [key, value] : run.config)
    if (key == "seed") return value;
  return "";
}

bool is_setting(const std::string& key) {
  return key != "seed" && !key.starts_with("run.");
}

Comparison compare(const std::vector<const Report*>& runs, const std::string& metric, bool lower_is_better,
                   std::vector<double> values) {
  Comparison c;
  c.metric = metric;
  c.lower_is_better = lower_is_better;
  c.values = std::move(values);
  group_runs(runs, c);
  find_best(c);
  return c;
}

Comparison compare(const std::vector<const Report*>& runs) {
  const auto translated =
      std::find_if(runs.begin(), runs.end(), [](const Report* r) { return r->translation.has_value(); });
  const bool bleu = translated != runs.end();
  const std::string split = bleu ? (*translated)->translation->split : "";
  std::vector<double> values;
  for (const Report* r : runs) {
    double value = NAN;
    if (bleu && r->translation && r->translation->split == split) value = r->translation->at("BLEU", NAN);
    if (!bleu && r->best) value = r->best->at("ppl", NAN);
    values.push_back(r->status.diverged() || !std::isfinite(value) ? NAN : value);
  }
  return compare(runs, bleu ? split + " BLEU" : "best valid ppl", !bleu, std::move(values));
}

int64_t step_of_best(const Report& run) {
  return run.translation ? run.translation->step : run.best ? run.best->step : -1;
}

std::string headline_value(const Comparison& c) {
  if (c.best_group < 0) return "";
  const SeedGroup& best = c.groups[static_cast<size_t>(c.best_group)];
  const std::string mean = format("%.6g", best.mean);
  if (!best.half_interval) return mean;
  return str(mean, " ± ", format("%.2g", *best.half_interval), " (mean of ", best.values.size(),
             " seeds, 95 % interval)");
}

std::vector<std::vector<std::string>> comparison_rows(const std::vector<Report>& runs, const Comparison& c) {
  std::vector<std::vector<std::string>> rows{
      {"RUN", "STATE", "STEP", "BEST VALID PPL", "AT STEP", "LAST VALID PPL", "PEAK MEMORY", "SENT PER RANK AND STEP"}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const Report& r = runs[i];
    rows.push_back({(static_cast<int64_t>(i) == c.best_run ? "* " : "") + r.directory, state_text(r),
                    std::to_string(r.step), value_at(r.best, "ppl"), r.best ? std::to_string(r.best->step) : "",
                    value_at(r.valid, "ppl"), r.memory.contains("total") ? bytes(r.memory.at("total").max) : "",
                    r.traffic.empty() ? "" : bytes(sent_per_step(r))});
  }
  return rows;
}

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

}  // namespace lmx::app::report
