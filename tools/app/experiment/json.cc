// results.json and table.csv: the results for programs.
#include <nlohmann/json.hpp>

#include "app/experiment/results.h"
#include "app/records/half_interval.h"
#include "app/records/records.h"
#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using Json = nlohmann::ordered_json;

// Returns the numbers of a cell that have this origin.
Json numbers(const Results& r, const Cell& cell, Origin origin) {
  Json json = Json::object();
  for (const auto& [name, value] : r.by_cell.at(cell.id).values)
    if (origin_of(*r.experiment.measure(name), cell) == origin) json[name] = json_number(value);
  return json;
}

const char* name_of(Origin origin) {
  return origin == Origin::measured ? "measured" : origin == Origin::planned ? "planned" : "formula";
}

std::string state_of(const Results& r, const Cell& cell) {
  const auto result = r.by_cell.find(cell.id);
  const bool any = result != r.by_cell.end();
  if (!cell.runs) return any && !result->second.planned.columns.empty() ? "planned" : "formula";
  if (any && result->second.done) return result->second.diverged ? kDiverged : "done";
  return r.failed.contains(cell.id) ? "failed" : "not run";
}

Json cell_json(const Results& r, const Cell& cell) {
  Json json{{"id", cell.id}, {"place", Json::object()}, {"overrides", cell.overrides}};
  for (const auto& [axis, label] : cell.place) json["place"][axis] = label;
  const auto result = r.by_cell.find(cell.id);
  const auto failure = r.failed.find(cell.id);
  const bool any = result != r.by_cell.end();
  json["state"] = state_of(r, cell);
  if (failure != r.failed.end()) json["reason"] = failure->second;
  if (!cell.same_as.empty()) json["same_as"] = cell.same_as;
  if (!any) return json;
  json["measured"] = numbers(r, cell, Origin::measured);
  if (!result->second.planned.columns.empty()) {
    json["planned"] = numbers(r, cell, Origin::planned);
    json["out_of_memory"] = result->second.planned.out_of_memory;
    json["sets_speed"] = result->second.planned.anchor;
    json["speed"] = json_number(result->second.planned.speed);
  }
  json["formula"] = Json::object();
  for (const auto& [name, value] : result->second.formulas) json["formula"][name] = json_number(value);
  return json;
}

Json row_json(const Results& r, const Row& row) {
  Json json{{"labels", row.labels}, {"place", Json::object()}, {"measures", Json::object()}};
  for (const auto& [axis, label] : row.first().place)
    if (!r.experiment.averages(axis)) json["place"][axis] = label;
  for (const Measure& m : r.experiment.measures) {
    const std::vector<Sample> samples = samples_of(r, row, m);
    const std::string paper = paper_text(row, m);
    if (samples.empty() && paper.empty() && !out_of_memory(r, row, m)) continue;
    Json& entry = json["measures"][m.id] = Json::object();
    if (!samples.empty())
      entry = {{"mean", json_number(mean(samples))},
               {"spread", json_number(spread(samples))},
               {"runs", samples.size()},
               {"origin", name_of(origin_of(m, row.first()))}};
    if (out_of_memory(r, row, m)) entry["out_of_memory"] = true;
    if (!paper.empty()) entry["paper"] = paper;
  }
  return json;
}

Json verdict_json(const Verdict& v) {
  Json json{{"claim", v.claim},       {"class", v.kind},      {"paper", v.paper},   {"expected", v.expected},
            {"measured", v.measured}, {"verdict", v.verdict}, {"reason", v.reason}, {"planned", v.planned}};
  for (const Estimate& e : v.estimates) {
    json["values"].push_back(json_number(e.value));
    json["standard_errors"].push_back(e.single.empty() ? json_number(e.error) : Json());  // null: not measured
  }
  if (v.test) json["p"] = json_number(v.test->p), json["adjusted_p"] = json_number(v.test->adjusted);
  return json;
}

Json interval_json(const Between& i) {
  return {{"value", json_number(i.value)}, {"low", json_number(i.low)}, {"high", json_number(i.high)}};
}

Json break_even_json(const BreakEvenRow& row) {
  return {{"labels", row.labels},
          {"seeds", row.seeds},
          {"part", interval_json(row.part)},
          {"gbit_s", interval_json(row.gbit_s)},
          {"step_ratios", row.ratios},
          {"verdict", row.verdict}};
}

}  // namespace

std::string json(const Results& r) {
  Json out{{"format", 1},
           {"lmx", lmx::kVersion},
           {"experiment", r.experiment.id},
           {"title", r.experiment.title},
           {"paper", r.experiment.paper},
           {"place", r.experiment.place},
           {"scale", r.scale.id},
           {"devices", r.devices},
           {"cells", Json::array()},
           {"rows", Json::array()},
           {"comparisons", Json::array()},
           {"verdicts", Json::array()},
           {"significance", kSignificant},
           {"tests", r.comparisons},
           {"notes", r.experiment.notes}};
  for (const Cell& cell : r.cells) out["cells"].push_back(cell_json(r, cell));
  for (const Row& row : r.rows) out["rows"].push_back(row_json(r, row));
  for (const Comparison& c : comparisons(r))
    out["comparisons"].push_back({{"measure", c.measure->id},
                                  {"cell", c.cell},
                                  {"paper", c.paper},
                                  {"ours", c.ours},
                                  {"class", c.origin},
                                  {"off", c.off},
                                  {"verdict", c.verdict}});
  for (const Verdict& v : r.verdicts) out["verdicts"].push_back(verdict_json(v));
  for (const BreakEvenRow& row : r.break_even) out["break_even"].push_back(break_even_json(row));
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string csv(const Results& r) {
  std::string out = "cell";
  for (const Axis& axis : r.experiment.axes) out += "," + axis.id;
  out += ",state";
  for (const Measure& m : r.experiment.measures) out += "," + m.id;
  for (const Cell& cell : r.cells) {
    out += "\n" + cell.id;
    for (const Axis& axis : r.experiment.axes) out += "," + (cell.value(axis.id) ? *cell.value(axis.id) : "");
    out += "," + state_of(r, cell);
    for (const Measure& m : r.experiment.measures) {
      const std::optional<double> value = value_of(r, cell, m.id);
      out += "," + (value ? plain_number(*value) : "");
    }
  }
  return out + "\n";
}

}  // namespace lmx_cli::experiments
