#include "app/report/step_times.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/report/chart.h"
#include "app/report/report.h"
#include "base/text.h"
#include "lmx/error.h"
#include "sync/unit_queue.h"

namespace lmx::app {
namespace {

constexpr double kBar = 1.189207115002721;  // four bars per factor of two

std::string milliseconds(double seconds) {
  return format(seconds < 0.01 ? "%.2f ms" : seconds < 0.1 ? "%.1f ms" : "%.0f ms", seconds * 1e3);
}

double middle(double bar) {
  return bar * std::sqrt(kBar);
}

std::string box(const Interval& i, double x, double width, double y, double height) {
  const std::string text =
      format("<rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s' stroke='#fff' stroke-width='0.5'>", x, y,
             std::max(width, 0.5), height, i.travels ? "#d55e00" : "#0072b2");
  return str(text, "<title>", i.name, ", ", milliseconds(i.end - i.begin), "</title></rect>\n");
}

}  // namespace

// Reads the keys sub_batch/<i>/<field> and unit/<i>/<parameter>/<field> of one rank's record.
std::vector<Interval> intervals_of(const RunRecord& record) {
  std::map<std::string, Interval> found;
  for (const auto& [key, value] : record.values) {
    const bool travels = key.starts_with("unit/");
    if (!travels && !key.starts_with("sub_batch/")) continue;
    const size_t last = key.rfind('/');
    Interval& interval = found[key.substr(0, last)];
    interval.travels = travels;
    const std::string what = key.substr(last + 1);
    if (what == "begin_s") interval.begin = value;
    if (what == "end_s") interval.end = value;
    if (what == "target_tokens") interval.name = str(static_cast<int64_t>(value), " target tokens");
    if (travels) interval.name = key.substr(key.find('/', 5) + 1, last - key.find('/', 5) - 1);
  }
  std::vector<Interval> all;
  for (auto& [key, interval] : found)
    if (interval.end > interval.begin) all.push_back(std::move(interval));
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return all;
}

double SubBatches::mean() const {
  double sum = 0, count = 0;
  for (const auto& [bar, n] : histogram) {
    sum += n * middle(bar);
    count += n;
  }
  return count > 0 ? sum / count : 0;
}

double SubBatches::quantile(double q) const {
  double count = 0, passed = 0;
  for (const auto& [bar, n] : histogram) count += n;
  for (const auto& [bar, n] : histogram) {
    passed += n;
    if (passed >= q * count) return middle(bar);
  }
  return 0;
}

SubBatches sub_batches(const std::vector<RunRecord>& records) {
  SubBatches all;
  for (const RunRecord& record : records) {
    if (record.split != "rank") continue;
    for (const auto& [key, value] : record.values)
      if (key.starts_with("sub_batch_s/")) all.histogram[std::atof(key.c_str() + 12)] += value;
    if (record.step != all.step) all.timeline.clear();
    all.step = record.step;
    all.timeline[static_cast<int64_t>(record.at("rank"))] = intervals_of(record);
  }
  return all;
}

std::string histogram_svg(const SubBatches& all) {
  Chart chart;
  chart.title = str("Sub-batches: mean ", milliseconds(all.mean()), ", 90 % within ", milliseconds(all.quantile(0.9)));
  chart.x_title = "forward and backward";
  chart.y_title = "sub-batches";
  ChartSeries bars;
  bars.label = "sub-batches";
  const double first = all.histogram.begin()->first, last = all.histogram.rbegin()->first;
  for (double bar = first; bar < last * std::sqrt(kBar); bar *= kBar) {
    const auto found = all.histogram.lower_bound(bar / std::sqrt(kBar));
    const bool here = found != all.histogram.end() && found->first < bar * std::sqrt(kBar);
    chart.names.push_back(milliseconds(bar));
    bars.points.push_back({static_cast<double>(bars.points.size()), here ? found->second : 0, 0,
                           str(milliseconds(bar), " to ", milliseconds(bar * kBar))});
  }
  chart.series.push_back(std::move(bars));
  return svg(chart);
}

std::string timeline_svg(const SubBatches& all) {
  constexpr double kLane = 26, kLeft = 70, kWidth = 860, kTop = 44;
  double end = 0;
  for (const auto& [rank, intervals] : all.timeline)
    for (const Interval& i : intervals) end = std::max(end, i.end);
  const double height = kTop + kLane * static_cast<double>(all.timeline.size()) + 40,
               scale = kWidth / std::max(end, 1e-9);
  std::string text =
      str("<svg xmlns='http://www.w3.org/2000/svg' width='", kLeft + kWidth + 30, "' height='", height,
          "' font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='#fff'/>\n<text x='",
          kLeft, "' y='24' font-size='15'>Step ", all.step,
          ": forward and backward of each sub-batch (blue), gradients on their way (orange)</text>\n");
  double y = kTop;
  for (const auto& [rank, intervals] : all.timeline) {
    text += str("<text x='8' y='", y + kLane / 2 + 4, "'>rank ", rank, "</text>\n");
    for (const Interval& i : intervals)
      text +=
          box(i, kLeft + i.begin * scale, (i.end - i.begin) * scale, i.travels ? y + 16 : y + 2, i.travels ? 6 : 14);
    y += kLane;
  }
  for (int tick = 0; tick <= 4; ++tick) {
    const double x = kLeft + kWidth * tick / 4.0;
    text += str("<line x1='", x, "' x2='", x, "' y1='", kTop, "' y2='", y,
                "' stroke='#ccc' stroke-dasharray='2 3'/><text x='", x, "' y='", y + 18, "' text-anchor='middle'>",
                milliseconds(end * tick / 4.0), "</text>\n");
  }
  return text + "</svg>\n";
}

std::string timeline_trace(const SubBatches& all) {
  nlohmann::json events = nlohmann::json::array();
  for (const auto& [rank, intervals] : all.timeline) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", str("rank ", rank)}}}});
    for (const Interval& i : intervals)
      events.push_back({{"ph", "X"},
                        {"name", i.name},
                        {"cat", i.travels ? "sync" : "compute"},
                        {"pid", rank},
                        {"tid", i.travels ? 1 : 0},
                        {"ts", i.begin * 1e6},
                        {"dur", (i.end - i.begin) * 1e6}});
  }
  return nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

namespace {

// Reads the keys unit/<number>/<parameter>/<field> of one rank's record.
std::vector<UnitTimes> units_of(const RunRecord& record) {
  std::map<int, UnitTimes> units;
  for (const auto& [key, value] : record.values) {
    if (!key.starts_with("unit/")) continue;
    const size_t name = key.find('/', 5), what = key.rfind('/');
    if (name == std::string::npos || what <= name) continue;
    UnitTimes& unit = units[std::atoi(key.c_str() + 5)];
    unit.first = key.substr(name + 1, what - name - 1);
    const std::string field = key.substr(what + 1);
    if (field == "bytes") unit.bytes = value;
    if (field == "ready_s") unit.ready = value;
    if (field == "begin_s") unit.begin = value;
    if (field == "end_s") unit.end = value;
  }
  std::vector<UnitTimes> ordered;
  for (auto& [number, unit] : units) ordered.push_back(std::move(unit));
  return ordered;
}

void add(UnitTimes& sum, const UnitTimes& unit) {
  sum.first = unit.first;
  sum.bytes += unit.bytes;
  sum.ready += unit.ready;
  sum.begin += unit.begin;
  sum.end += unit.end;
  sum.hidden += unit.hidden;
  sum.exposed += unit.exposed;
}

void divide(UnitTimes& sum, double n) {
  for (double* value : {&sum.bytes, &sum.ready, &sum.begin, &sum.end, &sum.hidden, &sum.exposed}) *value /= n;
}

void add_timelines(CommTimes& times, const std::vector<RunRecord>& records) {
  double count = 0, of_rank_0 = 0;
  for (const RunRecord& record : records) {
    if (record.split != "rank") continue;
    std::vector<UnitTimes> units = units_of(record);
    if (units.empty()) continue;
    if (times.units.size() != units.size()) {  // a resumed run whose recipe makes other units: use the last start's
      times.units.assign(units.size(), {});
      times.possible = count = of_rank_0 = 0;
    }
    const auto by_ready = [](const UnitTimes& a, const UnitTimes& b) { return a.ready < b.ready; };
    const auto [earliest, latest] = std::minmax_element(units.begin(), units.end(), by_ready);
    const double first = earliest->ready, computed = latest->ready;
    double travelling = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      UnitTimes& unit = units[i];
      unit.hidden = std::max(0.0, std::min(unit.end, computed) - unit.begin);
      unit.exposed = std::max(0.0, unit.end - unit.begin - unit.hidden);
      travelling += unit.end - unit.begin;
      add(times.units[i], unit);
    }
    ++count;
    if (record.at("rank") != 0) continue;
    times.possible += std::min(travelling, computed - first);
    ++of_rank_0;
  }
  if (count == 0) return;
  times.possible /= std::max(1.0, of_rank_0);
  for (UnitTimes& unit : times.units) divide(unit, count);
}

}  // namespace

CommTimes comm_times(const std::vector<RunRecord>& records) {
  CommTimes times;
  const std::vector<double> windows = report::window_steps(records);
  const double steps = std::accumulate(windows.begin(), windows.end(), 0.0);
  for (const RunRecord& r : records) {
    if (r.split != "train") continue;
    times.busy += r.at("comm_s");
    times.exposed += r.at("comm_exposed_s");
  }
  if (steps > 0) {
    times.busy /= steps;
    times.exposed /= steps;
  }
  add_timelines(times, records);
  return times;
}

}  // namespace lmx::app
