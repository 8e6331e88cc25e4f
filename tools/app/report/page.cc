#include "app/report/page.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "app/report/chart.h"
#include "app/report/compare.h"
#include "app/report/report.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::report {
namespace {

// The records of a run with few enough points to draw.
struct Curve {
  std::string split, key;
  std::vector<double> x, y;  // step; the value, which may be NaN or infinite
};

// Returns whether a record contains the sum over its steps.
bool is_sum_over_window(const std::string& key) {
  static const std::set<std::string> kSums{
      "comm_sent_bytes", "comm_received_bytes", "comm_sent_between_nodes_bytes", "comm_received_between_nodes_bytes",
      "comm_s",          "comm_exposed_s"};
  return kSums.contains(key);
}

bool is_curve(const RunRecord& record, const std::string& key) {
  static const std::set<std::string> kAxes{"tokens", "epoch", "steps", "rank"};
  if (key.find('/') == std::string::npos) return !kAxes.contains(key);
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

// Returns every number of the splits train, valid and test and of sync strategies ("<rule>/<name>"), ordered by key.
// Excludes numbers of single units, parameters and sub-batches (other names with a slash), and numbers that are axes.
// Bytes and seconds of communication, which a record contains for all its steps, are divided by the number of steps.
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

// Returns at most `most` points (at least 4). Keeps the first, the least and the greatest point of each section of a
// longer curve, and its last point.
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

// The runs and points in the page: all of them, or the best.
struct Listed {
  std::vector<const Report*> runs;
  std::optional<SweepView> sweep;
  std::string best;  // "Of 9,000 points the 20 best are here."; "" if all are there
};

constexpr size_t kLongestValue = 2000;      // of a configuration, in bytes
constexpr size_t kLongestSamples = 20'000;  // of samples.txt, in bytes

// Six significant digits are enough for a chart; NaN and infinities become gaps.
Json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(format("%.6g", value).c_str(), nullptr);
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
  return str(text.substr(0, most), " ... (", text.size(), " bytes)");
}

// Returns {key, values} for every key of the configurations; one value if it is the same in all runs.
Json config_table(const Listed& listed) {
  Json json = Json::array();
  for (Setting& setting : settings_of(listed.runs)) {
    for (std::string& value : setting.values) value = cut(value, kLongestValue);
    if (setting.same()) setting.values.resize(1);
    json.push_back({{"key", setting.key}, {"values", setting.values}});
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

// Returns name, folder, state and perplexities of a run whose curves do not fit into the page.
Json brief_json(const Report& run) {
  Json json{{"name", name_of(run)}, {"directory", run.directory}, {"ranks", run.ranks},
            {"step", run.step},     {"state", state_text(run)},   {"reason", run.status.reason}};
  auto rows = result_rows(run);
  rows.resize(std::min<size_t>(rows.size(), 2));  // the perplexities
  json["results"] = rows;
  return json;
}

// Returns brief_json(), and also curves of at most `most_points` points, memory, traffic and provenance.
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
  json["strategy"] = Json::object();
  for (const auto& [key, value] : run.strategy) json["strategy"][key] = short_number(value);
  json["samples"] = cut(run.samples, kLongestSamples);
  return json;
}

// Compares by the sweep's metric if there is a sweep, otherwise like compare(runs).
Comparison comparison_of(const Listed& listed) {
  if (!listed.sweep) return compare(listed.runs);
  std::vector<double> values(listed.runs.size(), NAN);
  for (const SweepView::Point& p : listed.sweep->points)
    if (p.run >= 0) values[static_cast<size_t>(p.run)] = p.value;
  return compare(listed.runs, listed.sweep->metric, listed.sweep->lower_is_better, std::move(values));
}

// Returns the winner's number, the winner, and the groups of seeds.
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

// Returns axes, points and the importance of each axis.
Json sweep_json(const SweepView& sweep) {
  Json json{
      {"metric", sweep.metric}, {"lower", sweep.lower_is_better}, {"axes", Json::array()}, {"points", Json::array()}};
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> places;
  std::vector<double> values;
  for (const SweepView::Axis& a : sweep.axes) {
    json["axes"].push_back({{"name", a.name}, {"values", a.values}});
    names.push_back(a.name);
  }
  for (const SweepView::Point& p : sweep.points) {
    json["points"].push_back(
        {{"place", p.place}, {"outcome", p.outcome}, {"value", short_number(p.value)}, {"run", p.run}});
    places.push_back(p.place);
    values.push_back(p.value);
  }
  json["importance"] = Json::array();
  for (const Importance& i : importance_of(names, places, values))
    json["importance"].push_back(
        {{"axis", i.axis}, {"share", short_number(i.share)}, {"chance", short_number(i.chance)}});
  return json;
}

constexpr size_t kPageBytes = 2'000'000;  // limit of the page
// Bytes for curves that normally leave enough room for scripts, configurations and the other data.
constexpr size_t kCurveBytes = 1'200'000;
constexpr size_t kBytesOfPoint = 15;  // a step of five digits, a value of six digits, two commas
constexpr size_t kMostPoints = 2000, kFewestPoints = 8;

size_t points_of_curve(const std::vector<std::vector<Curve>>& curves) {
  size_t all = 1;
  for (const std::vector<Curve>& run : curves) all += run.size() + 4;
  return std::clamp(kCurveBytes / kBytesOfPoint / all, kFewestPoints, kMostPoints);
}

// Returns the indices of the runs, the best first and those without a value last.
std::vector<size_t> best_first(const Listed& listed) {
  const Comparison c = comparison_of(listed);
  std::vector<size_t> order(listed.runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const double x = c.values[a], y = c.values[b];
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return c.lower_is_better ? x < y : x > y;
  });
  return order;
}

// A text inside <script> must not contain "</script" or "<!--".
std::string script_text(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

// The extent of the data in a page: the maximum number of points per curve, and which runs have curves.
struct Extent {
  size_t points = 0;
  std::vector<bool> whole;
  size_t count = 0;  // number of runs with curves
};

// Returns a note about the left out data; "" if nothing is left out.
std::string left_out(const Extent& extent, const Listed& listed) {
  if (extent.count == extent.whole.size()) return listed.best;
  return str(listed.best, listed.best.empty() ? "" : " ", "Curves, memory, bytes and provenance are those of the ",
             extent.count, " best of ", extent.whole.size(), " runs by ",
             listed.sweep ? listed.sweep->metric : "validation perplexity",
             ": there is no room for more below 2 MB. lmx report RUN shows any one.");
}

// Returns the page's data. Reduces the points per curve, then the number of runs with curves, until the data has at
// most `limit` bytes or no run has curves.
std::string fitting_data(const std::string& title, const Listed& listed, size_t limit) {
  const auto& runs = listed.runs;
  std::vector<std::vector<Curve>> curves;
  for (const Report* r : runs) curves.push_back(curves_of(r->records));
  Extent extent{points_of_curve(curves), std::vector<bool>(runs.size(), true), runs.size()};
  const std::vector<size_t> order = best_first(listed);
  const Json config = config_table(listed), comparison = comparison_json(listed, comparison_of(listed));
  for (;;) {
    Json data{{"format", 2},
              {"title", title},
              {"left_out", left_out(extent, listed)},
              {"comparison", comparison},
              {"runs", Json::array()}};
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

// Returns the `most` best runs. For a sweep, also returns the points of these runs and, up to `most`, points without a
// run.
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

// If there are very many runs with long values, not even names and values fit. Then the page only contains the best
// runs.
std::string fitting_best(const std::string& title, const Listed& all, size_t limit) {
  std::string text = fitting_data(title, all, limit);
  const size_t count = all.sweep ? all.sweep->points.size() : all.runs.size();
  for (size_t most = count; text.size() > limit && most > 1;) {
    most = std::max<size_t>(1, static_cast<size_t>(0.9 * static_cast<double>(most) * static_cast<double>(limit) /
                                                   static_cast<double>(text.size())));
    Listed best = best_of(all, most);
    best.best = str("Of ", count, all.sweep ? " points" : " runs", " the ", most, " best are here.");
    text = fitting_data(title, best, limit);
  }
  return text;
}

// Concatenates the scripts so that each comes after those it uses.
std::string scripts() {
  return std::string(base_js) + metrics_js + figure_js + curves_js + bars_js + sweep_js + tables_js + page_js;
}

size_t bytes_without_data(const std::string& title) {
  size_t bytes = 2 * escaped(title).size();
  for (const char* part : {page_html, style_css}) bytes += std::string_view(part).size();
  return bytes + scripts().size();
}

void put_in_place(std::string& text, const std::string& mark, const std::string& what) {
  text.replace(text.find(mark), mark.size(), what);
}

}  // namespace

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

std::string page(const std::string& title, const std::vector<Report>& runs, const SweepView* sweep, int64_t refresh_s) {
  Listed all;
  for (const Report& r : runs) all.runs.push_back(&r);
  if (sweep) all.sweep = *sweep;
  const std::string data = fitting_best(title, all, kPageBytes - bytes_without_data(title));
  std::string text = page_html;
  put_in_place(text, "{{title}}", escaped(title));
  put_in_place(text, "{{refresh}}",
               refresh_s > 0 ? str("\n<meta http-equiv=\"refresh\" content=\"", refresh_s, "\">") : "");
  put_in_place(text, "{{style}}", style_css);
  put_in_place(text, "{{script}}", scripts());
  put_in_place(text, "{{data}}", data);  // last: it may contain any text, also a mark
  return text;
}

}  // namespace lmx::app::report
