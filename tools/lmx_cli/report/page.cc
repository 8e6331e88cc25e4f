#include "page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>

#include "../chart.h"
#include "assets.h"
#include "curves.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx_cli::reports {
namespace {

constexpr size_t kPageBytes = 2'000'000;  // the page stays below
// Bytes of curves that leave it there beside scripts, configurations and the rest, as a rule.
constexpr size_t kCurveBytes = 1'200'000;
constexpr size_t kBytesOfPoint = 15;    // a step of five digits, a value of six, two commas
constexpr size_t kLongestValue = 2000;  // of a configuration, in bytes
constexpr size_t kMostPoints = 2000, kFewestPoints = 8;

// What the page tells of: all runs and points, or the best of them.
struct Listed {
  std::vector<const Report*> runs;
  std::optional<SweepView> sweep;
  std::string best;  // "Of 9,000 points ..."; "" where all are there
};

// Six significant digits are more than a chart shows; NaN and infinities are gaps.
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

// "optimizer.lr" -> "0.1", leaves alone.
void flatten(const lmx::Node& node, const std::string& path, std::vector<std::pair<std::string, std::string>>& leaves) {
  if (node.kind != lmx::Node::Kind::map) {
    std::string text = node.kind == lmx::Node::Kind::scalar ? node.text : lmx::to_json(node);
    if (text.size() > kLongestValue) text = lmx::str(text.substr(0, kLongestValue), " ... (", text.size(), " bytes)");
    leaves.emplace_back(path, text);
    return;
  }
  for (const auto& [key, value] : node.entries) flatten(value, path.empty() ? key : path + "." + key, leaves);
}

// Of all runs: {key, values}; one value where all runs have the same.
Json config_table(const Listed& listed) {
  const auto& runs = listed.runs;
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> table;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::pair<std::string, std::string>> leaves;
    flatten(lmx::parse_yaml_file(runs[i]->directory + "/config.yaml"), "", leaves);
    for (const auto& [key, value] : leaves) {
      auto [row, fresh] = table.try_emplace(key, runs.size());
      if (fresh) order.push_back(key);
      row->second[i] = value;
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
  for (const auto& [key, line] : run.traffic)
    json.push_back({{"group", key.first},
                    {"collective", key.second},
                    {"sent", short_number(line.mean)},
                    {"received", short_number(line.received)},
                    {"total", short_number(line.total)}});
  return json;
}

// Of a run for whose curves there is no room.
Json brief_json(const Report& run) {
  Json json{{"name", name_of(run)}, {"directory", run.directory}, {"ranks", run.ranks}, {"step", run.step}};
  auto rows = result_rows(run);
  rows.resize(std::min<size_t>(rows.size(), 2));  // its perplexities
  json["results"] = rows;
  return json;
}

Json run_json(const Report& run, const std::vector<Curve>& curves, size_t most_points) {
  Json json = brief_json(run);
  json["results"] = result_rows(run);
  json["start"] = run.start;
  json["starts"] = run.starts;
  const Clock clock = thinned(clock_of(run.records), most_points);
  json["clock"] = {{"step", numbers(clock.step)},
                   {"tokens", numbers(clock.tokens)},
                   {"epoch", numbers(clock.epoch)},
                   {"hours", numbers(clock.hours)}};
  json["curves"] = Json::array();
  for (const Curve& whole : curves) {
    if (!run.on_a_wire && (whole.key == "comm_s" || whole.key == "comm_exposed_s")) continue;
    const Curve curve = thinned(whole, most_points);
    json["curves"].push_back(
        {{"split", curve.split}, {"key", curve.key}, {"x", numbers(curve.x)}, {"y", numbers(curve.y)}});
  }
  json["memory"] = memory_json(run);
  json["traffic"] = traffic_json(run);
  return json;
}

Json sweep_json(const SweepView& sweep) {
  Json json{
      {"metric", sweep.metric}, {"lower", sweep.lower_is_better}, {"axes", Json::array()}, {"points", Json::array()}};
  for (const SweepView::Axis& a : sweep.axes) json["axes"].push_back({{"name", a.name}, {"values", a.values}});
  for (const SweepView::Point& p : sweep.points)
    json["points"].push_back(
        {{"place", p.place}, {"outcome", p.outcome}, {"value", short_number(p.value)}, {"run", p.run}});
  return json;
}

size_t points_of_curve(const std::vector<std::vector<Curve>>& curves) {
  size_t all = 1;
  for (const std::vector<Curve>& run : curves) all += run.size() + 4;
  return std::clamp(kCurveBytes / kBytesOfPoint / all, kFewestPoints, kMostPoints);
}

// The runs by the sweep's metric, without one by validation perplexity, the best first; those without a value last.
std::vector<size_t> best_first(const Listed& listed) {
  const auto& [runs, sweep, ignored] = listed;
  std::vector<double> values(runs.size(), NAN);
  for (size_t i = 0; !sweep && i < runs.size(); ++i)
    if (runs[i]->best) values[i] = runs[i]->best->at("ppl", NAN);
  if (sweep)
    for (const SweepView::Point& p : sweep->points)
      if (p.run >= 0) values[static_cast<size_t>(p.run)] = sweep->lower_is_better ? p.value : -p.value;
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::isnan(values[a]) || std::isnan(values[b]) ? !std::isnan(values[a]) && std::isnan(values[b])
                                                          : values[a] < values[b];
  });
  return order;
}

// Inside <script> a text must not hold "</script" or "<!--".
std::string script_text(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

// What the page holds of its runs: so many points of a curve at most, and which runs have curves at all.
struct Extent {
  size_t points = 0;
  std::vector<bool> whole;
  size_t count = 0;  // of them
};

// "Of 9,000 points ... Curves of the 40 best of 300 runs ..."; "" where all are there.
std::string left_out(const Extent& extent, const Listed& listed) {
  if (extent.count == extent.whole.size()) return listed.best;
  return lmx::str(listed.best, listed.best.empty() ? "" : " ", "Curves, memory, bytes and provenance are those of the ",
                  extent.count, " best of ", extent.whole.size(), " runs by ",
                  listed.sweep ? listed.sweep->metric : "validation perplexity",
                  ": there is no room for more below 2 MB. lmx report RUN shows any one.");
}

// The page's data, with fewer points of each curve and then fewer runs' curves until it has at most `limit` bytes, or
// no curves.
std::string fitting_data(const std::string& title, const Listed& listed, size_t limit) {
  const auto& runs = listed.runs;
  std::vector<std::vector<Curve>> curves;
  for (const Report* r : runs) curves.push_back(curves_of(r->records));
  Extent extent{points_of_curve(curves), std::vector<bool>(runs.size(), true), runs.size()};
  const std::vector<size_t> order = best_first(listed);
  const Json config = config_table(listed);
  for (;;) {
    Json data{{"format", 1}, {"title", title}, {"left_out", left_out(extent, listed)}, {"runs", Json::array()}};
    for (size_t i = 0; i < runs.size(); ++i)
      data["runs"].push_back(extent.whole[i] ? run_json(*runs[i], curves[i], extent.points) : brief_json(*runs[i]));
    data["sweep"] = listed.sweep ? sweep_json(*listed.sweep) : Json(nullptr);
    data["config"] = config;
    std::string text = script_text(data);
    if (text.size() <= limit || extent.count == 0) return text;
    if (extent.points > kFewestPoints) {
      extent.points = std::max(kFewestPoints, extent.points / 2);
      continue;
    }
    const size_t fewer = extent.count * 3 / 4;
    while (extent.count > fewer) extent.whole[order[--extent.count]] = false;
  }
}

// The `most` best runs; of a sweep the points of these, and, as far as `most` goes, those that have no run.
Listed best_of(const Listed& all, size_t most) {
  Listed best;
  std::vector<size_t> order = best_first(all);
  order.resize(std::min(order.size(), most));
  std::sort(order.begin(), order.end());
  std::vector<int64_t> place(all.runs.size(), -1);
  for (const size_t i : order) {
    place[i] = static_cast<int64_t>(best.runs.size());
    best.runs.push_back(all.runs[i]);
  }
  if (!all.sweep) return best;
  best.sweep = all.sweep;
  best.sweep->points.clear();
  size_t room = most - order.size();
  for (SweepView::Point p : all.sweep->points) {
    if (p.run < 0 ? room == 0 : place[static_cast<size_t>(p.run)] < 0) continue;
    if (p.run < 0)
      --room;
    else
      p.run = place[static_cast<size_t>(p.run)];
    best.sweep->points.push_back(std::move(p));
  }
  for (size_t a = 0; a < best.sweep->axes.size(); ++a) {
    std::set<std::string> used;
    for (const SweepView::Point& p : best.sweep->points) used.insert(p.place[a]);
    std::erase_if(best.sweep->axes[a].values, [&](const std::string& v) { return !used.contains(v); });
  }
  return best;
}

// Of very many runs with long values not even names and values fit; then the page tells of the best alone.
std::string fitting_best(const std::string& title, const Listed& all, size_t limit) {
  std::string text = fitting_data(title, all, limit);
  const size_t count = all.sweep ? all.sweep->points.size() : all.runs.size();
  for (size_t most = count; text.size() > limit && most > 1;) {
    most = std::max<size_t>(1, static_cast<size_t>(0.9 * static_cast<double>(most) * static_cast<double>(limit) /
                                                   static_cast<double>(text.size())));
    Listed best = best_of(all, most);
    best.best = lmx::str("Of ", count, all.sweep ? " points" : " runs", " the ", most, " best are here.");
    text = fitting_data(title, best, limit);
  }
  return text;
}

size_t bytes_without_data(const std::string& title) {
  size_t bytes = 2 * escaped(title).size();
  for (const char* part : {assets::page_html, assets::style_css, assets::charts_js, assets::bars_js, assets::page_js})
    bytes += std::string_view(part).size();
  return bytes;
}

void put(std::string& text, const std::string& mark, const std::string& what) {
  text.replace(text.find(mark), mark.size(), what);
}

}  // namespace

std::string page(const std::string& title, const std::vector<Report>& runs, const SweepView* sweep) {
  Listed all;
  for (const Report& r : runs) all.runs.push_back(&r);
  if (sweep) all.sweep = *sweep;
  const std::string data = fitting_best(title, all, kPageBytes - bytes_without_data(title));
  std::string text = assets::page_html;
  put(text, "{{title}}", escaped(title));
  put(text, "{{style}}", assets::style_css);
  put(text, "{{script}}", std::string(assets::charts_js) + assets::bars_js + assets::page_js);
  put(text, "{{data}}", data);  // last: it may hold any text
  return text;
}

}  // namespace lmx_cli::reports
