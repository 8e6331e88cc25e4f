#include "app/report/comm_times.h"

#include <algorithm>

#include "sync/unit_queue.h"

namespace lmx_cli {
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
  std::map<int64_t, double> told;  // steps that rank 0's record covers; after a resume fewer than between records
  for (const RunRecord& r : records)
    if (r.split == "rank" && r.at("rank") == 0) told[r.step] = r.at("steps");
  double steps = 0;
  int64_t before = 0;
  for (const RunRecord& r : records) {
    if (r.split != "train") continue;
    const auto found = told.find(r.step);
    steps += found == told.end() ? static_cast<double>(r.step - before) : found->second;
    before = r.step;
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

}  // namespace lmx_cli
