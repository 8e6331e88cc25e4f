#include "app/report/page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/report/compare.h"
#include "app/report/report.h"
#include "lmx/error.h"

namespace lmx_cli::reports {
namespace {

constexpr size_t kLongestValue = 2000;      // of a configuration, in bytes
constexpr size_t kLongestSamples = 20'000;  // of samples.txt, in bytes

// Six significant digits are enough for a chart; NaN and infinities become gaps.
Json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

Json numbers(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double v : values) json.push_back(short_number(v));
  return json;
}

std::string name_of(const Report& run) {
  const std::filesystem::path path = std::filesystem::path(run.directory).lexically_normal();
  const std::filesystem::path last = path.has_filename() ? path : path.parent_path();
  const std::filesystem::path recipe = last.parent_path().filename();
  return recipe.empty() || recipe == ".." || recipe == "." ? last.filename().string()
                                                           : (recipe / last.filename()).string();
}

std::string cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  return lmx::str(text.substr(0, most), " ... (", text.size(), " bytes)");
}

}  // namespace

Json config_table(const Listed& listed) {
  Json json = Json::array();
  for (Setting& setting : settings_of(listed.runs)) {
    for (std::string& value : setting.values) value = cut(value, kLongestValue);
    if (setting.same()) setting.values.resize(1);
    json.push_back({{"key", setting.key}, {"values", setting.values}});
  }
  return json;
}

namespace {

Json memory_json(const Report& run) {
  std::vector<std::string> classes;
  for (const auto& [name, line] : run.memory)
    if (name != "total") classes.push_back(name);
  Json json{{"classes", classes}, {"ranks", Json::array()}};
  for (const auto& [rank, values] : run.rank_memory) {
    Json bytes = Json::array();
    for (const std::string& name : classes) bytes.push_back(values.contains(name) ? values.at(name) : 0.0);
    const auto total = values.find("total");
    json["ranks"].push_back({{"rank", rank}, {"bytes", bytes}, {"total", total == values.end() ? 0.0 : total->second}});
  }
  return json;
}

Json traffic_json(const Report& run) {
  Json json = Json::array();
  for (const auto& [key, line] : run.traffic) {
    json.push_back({{"group", key.first},
                    {"collective", key.second},
                    {"sent", short_number(line.mean)},
                    {"received", short_number(line.received)},
                    {"total", short_number(line.total)}});
    if (line.between_nodes) json.back()["sent_between_nodes"] = short_number(*line.between_nodes);
  }
  return json;
}

// The last value of each number that strategies report.
Json strategy_json(const Report& run) {
  Json json = Json::object();
  for (const auto& [key, value] : run.strategy) json[key] = short_number(value);
  return json;
}

}  // namespace

Json brief_json(const Report& run) {
  Json json{{"name", name_of(run)}, {"directory", run.directory}, {"ranks", run.ranks},
            {"step", run.step},     {"state", state_text(run)},   {"reason", run.status.reason}};
  auto rows = result_rows(run);
  rows.resize(std::min<size_t>(rows.size(), 2));  // the perplexities
  json["results"] = rows;
  return json;
}

Json run_json(const Report& run, const std::vector<Curve>& curves, size_t most_points) {
  Json json = brief_json(run);
  json["results"] = result_rows(run);
  json["start"] = Json::parse(run.start);
  json["starts"] = run.starts;
  json["ended"] = run.status.time;
  const Clock clock = thinned(clock_of(run.records), most_points);
  json["clock"] = {{"step", numbers(clock.step)},
                   {"tokens", numbers(clock.tokens)},
                   {"epoch", numbers(clock.epoch)},
                   {"hours", numbers(clock.hours)}};
  const LastWindow& last = run.last_window;
  if (last.is_short()) json["short_window"] = {{"step", last.step}, {"steps", last.steps}, {"usual", last.usual}};
  json["curves"] = Json::array();
  for (const Curve& whole : curves) {
    if (!run.on_a_wire && (whole.key == "comm_s" || whole.key == "comm_exposed_s")) continue;
    const Curve curve = thinned(whole, most_points);
    json["curves"].push_back(
        {{"split", curve.split}, {"key", curve.key}, {"x", numbers(curve.x)}, {"y", numbers(curve.y)}});
  }
  json["memory"] = memory_json(run);
  json["traffic"] = traffic_json(run);
  if (run.on_a_wire)
    json["comm"] = {{"busy_s", short_number(run.times.busy)}, {"exposed_s", short_number(run.times.exposed)}};
  json["strategy"] = strategy_json(run);
  json["samples"] = cut(run.samples, kLongestSamples);
  return json;
}

Comparison compare(const Listed& listed) {
  if (!listed.sweep) return compare(listed.runs);
  std::vector<double> values(listed.runs.size(), NAN);
  for (const SweepView::Point& p : listed.sweep->points)
    if (p.run >= 0) values[static_cast<size_t>(p.run)] = p.value;
  return compare(listed.runs, listed.sweep->metric, listed.sweep->lower_is_better, std::move(values));
}

Json comparison_json(const Listed& listed, const Comparison& c) {
  Json json{{"metric", c.metric}, {"lower", c.lower_is_better}, {"best_run", c.best_run}, {"best_group", c.best_group}};
  json["values"] = numbers(c.values);
  json["groups"] = Json::array();
  for (const SeedGroup& g : c.groups)
    json["groups"].push_back({{"runs", g.runs},
                              {"mean", short_number(g.mean)},
                              {"half_interval", g.half_interval ? short_number(*g.half_interval) : Json(nullptr)}});
  json["step"] = c.best_run < 0 || listed.sweep ? -1 : step_of_best(*listed.runs[static_cast<size_t>(c.best_run)]);
  return json;
}

Json sweep_json(const SweepView& sweep) {
  Json json{
      {"metric", sweep.metric}, {"lower", sweep.lower_is_better}, {"axes", Json::array()}, {"points", Json::array()}};
  for (const SweepView::Axis& a : sweep.axes) json["axes"].push_back({{"name", a.name}, {"values", a.values}});
  for (const SweepView::Point& p : sweep.points)
    json["points"].push_back(
        {{"place", p.place}, {"outcome", p.outcome}, {"value", short_number(p.value)}, {"run", p.run}});
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> places;
  std::vector<double> values;
  for (const SweepView::Axis& a : sweep.axes) names.push_back(a.name);
  for (const SweepView::Point& p : sweep.points) {
    places.push_back(p.place);
    values.push_back(p.value);
  }
  json["importance"] = Json::array();
  for (const Importance& i : importance_of(names, places, values))
    json["importance"].push_back(
        {{"axis", i.axis}, {"share", short_number(i.share)}, {"chance", short_number(i.chance)}});
  return json;
}

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
