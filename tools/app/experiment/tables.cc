// The cells, the paper's numbers and the verdicts: for table.md and a terminal, and for programs (results.json,
// table.csv).
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "app/experiment/results.h"
#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/records/half_interval.h"
#include "app/records/records.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

using Lines = std::vector<std::vector<std::string>>;

// How the tables of an experiment are written.
struct Style {
  bool terminal = false;

  std::string table(const Lines& lines) const {
    return terminal ? app::table(lines, terminal_width()) + "\n" : markdown_table(lines, " --- ") + "\n";
  }
  std::string title(const std::string& text) const { return terminal ? text : "# " + text; }
  std::string strong(const std::string& text) const { return terminal ? text : "**" + text + "**"; }
  std::string code(const std::string& text) const { return terminal ? text : "`" + text + "`"; }
  std::string set() const { return terminal ? "set" : "*set*"; }
  // A number that no run has measured, and the note about such numbers.
  std::string by_formula(const std::string& text) const { return terminal ? text + " (formula)" : "*" + text + "*"; }
  std::string formula_note() const { return terminal ? "" : "*Italics*: by formula, not run.\n\n"; }
};

std::string heading(const Measure& m, bool planned = false) {
  const std::string unit = m.unit + (planned ? (m.unit.empty() ? "planned" : ", planned") : "");
  return unit.empty() ? m.title : m.title + " (" + unit + ")";
}

std::string sample_text(const std::vector<Sample>& samples, int64_t digits) {
  if (samples.empty()) return "";
  std::string text = number_text(mean(samples), digits);
  if (spread(samples) > 0) text += " ± " + number_text(spread(samples), std::max<int64_t>(2, digits - 2));
  return text;
}

// The columns of a measure: measured, and also formula and paper if any row has one.
struct Column {
  const Measure* measure;
  bool formula = false, paper = false, planned = false;
};

std::vector<Column> columns_of(const Results& r) {
  std::vector<Column> columns;
  for (const Measure& m : r.experiment.measures) {
    Column column{&m};
    column.planned = all_planned(r, m);
    bool any = false;
    for (const Row& row : r.rows) {
      any = any || !samples_of(r, row, m).empty();
      column.formula = column.formula || !samples_of(r, row, m, true).empty();
      column.paper = column.paper || !paper_text(row, m).empty();
    }
    if (any || column.paper) columns.push_back(column);
  }
  return columns;
}

bool any_failed(const Results& r, const Row& row) {
  return std::any_of(row.cells.begin(), row.cells.end(), [&](const Cell* c) { return r.failed.contains(c->id); });
}

// `column_planned`: the heading says that the numbers are planned.
std::string planned_text(const Results& r, const Row& row, const Measure& m, bool column_planned, const Style& style) {
  if (out_of_memory(r, row, m)) return kOutOfMemory;
  const std::string text = sample_text(samples_of(r, row, m), m.digits);
  if (text.empty()) return "";
  return text + (fixed(r, row, m) ? " (" + style.set() + ")" : column_planned ? "" : " (planned)");
}

std::string row_text(const Results& r, const Row& row, const Column& column, const Style& style) {
  const Measure& m = *column.measure;
  if (!applies(r.experiment, m, row.first())) return "";
  if (origin_of(m, row.first()) == Origin::planned) return planned_text(r, row, m, column.planned, style);
  const std::vector<Sample> samples = samples_of(r, row, m);
  const size_t diverged = m.split == kOutcome ? 0 : diverged_runs(r, row);
  if (samples.empty() && lacks_time(m, row.first()) && r.by_cell.contains(row.first().id)) return "virtual ranks";
  if (samples.empty()) return any_failed(r, row) ? "failed" : diverged > 0 ? kDiverged : "not run";
  std::string text = sample_text(samples, m.digits);
  if (!row.first().runs && !text.empty()) text = style.by_formula(text);
  size_t runs = 0;
  for (const Cell* cell : row.cells) runs += cell->runs;
  if (!samples.empty() && samples.size() < runs)
    text += str(" (", samples.size(), " of ", runs, " runs", diverged > 0 ? str(", ", diverged, " diverged") : "", ")");
  return text;
}

std::string cells_table(const Results& r, const Style& style) {
  const std::vector<Column> columns = columns_of(r);
  Lines lines(1);
  for (const Axis& axis : r.experiment.axes)
    if (!r.experiment.averages(axis.id)) lines[0].push_back(axis.id);
  for (const Column& c : columns) {
    lines[0].push_back(heading(*c.measure, c.planned));
    if (c.formula) lines[0].push_back("formula");
    if (c.paper) lines[0].push_back("paper");
  }
  for (const Row& row : r.rows) {
    std::vector<std::string> line = row.labels;
    for (const Column& c : columns) {
      line.push_back(row_text(r, row, c, style));
      if (c.formula) line.push_back(sample_text(samples_of(r, row, *c.measure, true), c.measure->digits));
      if (c.paper) line.push_back(paper_text(row, *c.measure));
    }
    lines.push_back(std::move(line));
  }
  return lines.size() > 1 ? style.table(lines) : "";
}

bool any_origin(const Results& r, Origin origin) {
  return std::any_of(r.cells.begin(), r.cells.end(), [&](const Cell& cell) {
    return std::any_of(r.experiment.measures.begin(), r.experiment.measures.end(), [&](const Measure& m) {
      return applies(r.experiment, m, cell) && origin_of(m, cell) == origin;
    });
  });
}

std::string types_table(const Results& r, const Style& style) {
  const auto found = r.by_cell.find("types");
  if (found == r.by_cell.end()) return "";
  Lines lines{{"of the text", "measured", "paper"}};
  for (const Measure& m : r.experiment.measures) {
    const auto value = found->second.values.find(m.id);
    if (value == found->second.values.end()) continue;
    const Node* paper = m.paper.find("types");
    lines.push_back({heading(m), number_text(value->second, m.digits), paper ? paper->text : ""});
  }
  return lines.size() > 1 ? style.table(lines) : "";
}

std::string verdict_table(const Results& r, const Style& style) {
  Lines lines{{"claim", "class", "paper", "expected", "measured", "verdict"}};
  for (const Verdict& v : r.verdicts)
    lines.push_back({v.claim, v.kind, v.paper, v.expected,
                     v.measured + (v.planned && !v.measured.empty() ? " (planned)" : ""),
                     style.strong(v.verdict) + (v.reason.empty() ? "" : ": " + v.reason)});
  if (lines.size() == 1) return "";
  const bool errors = std::any_of(r.verdicts.begin(), r.verdicts.end(), [](const Verdict& v) {
    return std::any_of(v.estimates.begin(), v.estimates.end(), [](const Estimate& e) { return e.error > 0; });
  });
  return style.table(lines) +
         (errors ? str("In the column measured ± is the standard error over runs. Verdicts follow Student's t at 5 %, "
                       "corrected by Holm's method for ",
                       plural(r.comparisons, "comparison"), " of this table.\n\n")
                 : "");
}

// "38 % (35 to 41)", of the base's tokens.
std::string part_text(const Between& part) {
  const auto percent = [](double x) { return number_text(100 * x, 2); };
  if (std::isinf(part.value)) return "more than all";
  if (part.value == 0) return "less than measured";
  const std::string low = part.low == 0 ? "less" : percent(part.low),
                    high = std::isinf(part.high) ? "all" : percent(part.high);
  return percent(part.value) + " % (" + low + " to " + high + ")";
}

std::string break_even_table(const Results& r, const Style& style) {
  if (r.break_even.empty()) return "";
  const BreakEven& b = r.experiment.break_even;
  Lines lines(1);
  for (const Axis& axis : r.experiment.axes)
    if (!r.experiment.averages(axis.id)) lines[0].push_back(axis.id);
  lines[0].push_back("same loss as " + b.base + " after");
  const auto& points = r.break_even[0].ratios;
  for (size_t i = 0; i + 1 < points.size(); i += kPointsADecade)
    lines[0].push_back("step, " + number_text(points[i].first, 3) + " Gbit/s");
  lines[0].emplace_back("in equal time");
  for (const BreakEvenRow& row : r.break_even) {
    lines.push_back(row.labels);
    lines.back().push_back(part_text(row.part));
    for (size_t i = 0; i + 1 < points.size(); i += kPointsADecade)
      lines.back().push_back(number_text(row.ratios[i].second, 3));
    lines.back().push_back(style.strong(row.verdict));
  }
  return style.table(lines) +
         str("In equal time: the same loss as ", b.base,
             " after a part of its tokens, from runs with fewer steps and their own schedule. ",
             "Steps are planned for ", style.code(b.recipe.substr(b.recipe.rfind('/') + 1)), " on ", b.ranks,
             " ranks of ", b.machine, ", relative to ", b.base,
             ", by the bandwidth between nodes. Intervals: Student's t at 5 %, by Bonferroni's method for ",
             plural(r.break_even.size(), "row"), ".\n\n");
}

std::string note_of_plan(const Results& r, const Style& style) {
  if (!any_origin(r, Origin::planned)) return "";
  std::set<std::string> factors;
  bool known = false, based = false, uncalibrated = false;
  for (const auto& [id, result] : r.by_cell) {
    if (result.planned.columns.empty()) continue;
    if (result.planned.speed != 1) factors.insert(number_text(result.planned.speed, 3));
    uncalibrated |= result.planned.speed == 1;
    known |= result.planned.sets_speed;
    based |= result.planned.base;
  }
  std::string note =
      "Planned: by `lmx plan` for " + machines_of(plan_config(r.experiment, r.scale), r.cells) + ", not measured.";
  if (!factors.empty()) {
    note += known ? " The planner is calibrated on the cells of the paper marked " + style.set()
                  : " The planner is calibrated on a step of the paper that the machine's file states";
    note += ": computation takes " + joined(factors) + " times as long as the machine's file says.";
    if (uncalibrated) note += " Cells of another precision or machine are not calibrated.";
  }
  if (based) note += " Efficiency is relative to the cells where it is marked " + style.set() + ".";
  if (const Explained e = explained_times(r); e.cells > 0)
    note += str(" Of ", plural(e.cells, "number"), " of the paper that depend on time, the planner is close enough to ",
                e.by_planner, "; without any communication, and with the same calibration, it would be to ",
                e.without_network, ".");
  return note + "\n\n";
}

std::string written(const Results& r, const Style& style) {
  const Experiment& e = r.experiment;
  std::string out = style.title(e.title) + "\n\n";
  if (!e.question.empty()) out += e.question + "\n\n";
  if (!e.paper.empty()) out += "Paper: " + e.paper + (e.place.empty() ? "" : ", " + e.place) + ".\n";
  out += str("Experiment ", style.code(e.id), ", scale ", r.scale.id, ", recipe ",
             style.code(r.scale.recipe.substr(r.scale.recipe.rfind('/') + 1)));
  if (!e.average.empty()) out += "; mean ± standard deviation over " + joined(e.average);
  out += "." + devices_note(r) + "\n\n" + cells_table(r, style) + types_table(r, style);
  out += note_of_plan(r, style);
  if (any_origin(r, Origin::formula)) out += style.formula_note();
  out += verdict_table(r, style) + break_even_table(r, style);
  for (const auto& [cell, why] : r.failed) out += "- cell " + cell + " failed: " + why + "\n";
  for (const std::string& note : e.notes) out += "- " + note + "\n";
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace

std::string devices_note(const Results& r) {
  return r.devices.empty() ? "" : " Measured on " + joined(r.devices) + ".";
}

std::string planned_note(const Results& r) {
  return note_of_plan(r, {});
}

std::string markdown(const Results& r) {
  return written(r, {});
}

std::string text(const Results& r) {
  return fit(written(r, {.terminal = true}));
}

// results.json and table.csv: the results for programs.

namespace {

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
    json["sets_speed"] = result->second.planned.sets_speed;
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
           {"lmx", kVersion},
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
    out += "\n" + csv_cell(cell.id);
    for (const Axis& axis : r.experiment.axes) {
      const std::string* value = cell.value(axis.id);
      out += "," + (value ? csv_cell(*value) : "");
    }
    out += "," + state_of(r, cell);
    for (const Measure& m : r.experiment.measures) {
      const std::optional<double> value = value_of(r, cell, m.id);
      out += "," + (value ? plain_number(*value) : "");
    }
  }
  return out + "\n";
}

}  // namespace lmx::app::experiment
