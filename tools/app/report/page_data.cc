#include "app/report/page_data.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/report/importance.h"
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
  const auto& runs = listed.runs;
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> table;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [key, value] : runs[i]->config) {
      auto [row, fresh] = table.try_emplace(key, runs.size());
      if (fresh) order.push_back(key);
      row->second[i] = cut(value, kLongestValue);
    }
  }
  Json json = Json::array();
  for (const std::string& key : order) {
    const std::vector<std::string>& values = table[key];
    const bool same = std::all_of(values.begin(), values.end(), [&](const auto& v) { return v == values[0]; });
    json.push_back({{"key", key}, {"values", same ? Json::array({values[0]}) : Json(values)}});
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

}  // namespace lmx_cli::reports
