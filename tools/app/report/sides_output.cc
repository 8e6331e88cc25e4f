// The output of `lmx compare`.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/records/records.h"
#include "app/report/sides.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::report {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kMostRows = 5;    // fields and tensors of two runs
constexpr size_t kMostSteps = 12;  // of the curve

std::string signed_number(double value) {
  return format("%+.3g", value);
}

std::string steps_text(const std::vector<int64_t>& steps) {
  std::vector<std::string> words;
  for (const int64_t s : steps) words.push_back(std::to_string(s));
  return str(steps.size() == 1 ? "step " : "steps ", joined(words));
}

std::string differences_text(const std::string& title, const std::vector<SideDifference>& differences,
                             const std::string& equal) {
  if (differences.empty()) return fit(equal + "\n");
  Rows rows{{title, "A", "B"}};
  const auto shown = [](const std::string& value) { return value.empty() ? "-" : value; };
  for (const SideDifference& d : differences) rows.push_back({d.name, shown(d.a), shown(d.b)});
  return table(rows);
}

std::string records_line(const RecordDivergence& r) {
  if (r.compared == 0) return "metrics: no record of one run covers the same steps as a record of the other";
  if (r.fields.empty()) return str("metrics: ", r.compared, " records cover equal steps, and all are equal");
  return str("metrics: ", r.equal_until ? str("equal up to step ", *r.equal_until) : "no equal record before",
             ", first difference at step ", r.step, " (", r.split, ", ", plural(r.fields.size(), "field"), ")");
}

std::string checkpoints_line(const CheckpointDivergence& c) {
  const std::string equal = c.equal.empty() ? "" : str(" equal bit by bit at ", steps_text(c.equal));
  if (!c.step) return "checkpoints:" + (equal.empty() ? " the runs have none of equal steps" : equal);
  std::string line = str("checkpoints:", equal, equal.empty() ? "" : ",", " first difference at step ", *c.step,
                         ", in ", c.different.size(), " of ", c.tensors, " tensors");
  if (!c.only_a.empty()) line += str("; only A has ", joined(c.only_a));
  if (!c.only_b.empty()) line += str("; only B has ", joined(c.only_b));
  return line;
}

std::string index_text(const std::vector<int64_t>& index) {
  std::vector<std::string> words;
  for (const int64_t i : index) words.push_back(std::to_string(i));
  return "(" + joined(words, ",") + ")";
}

std::vector<std::string> tensor_cells(const TensorDifference& d) {
  if (d.shape_a != d.shape_b) return {d.name, str(d.shape_a, " and ", d.shape_b)};
  return {d.name,
          d.shape_a,
          index_text(d.index),
          format("%.6g", d.a),
          format("%.6g", d.b),
          format("%.2g", d.max_abs),
          format("%.2g", d.relative),
          std::to_string(d.elements)};
}

// Everything about two runs.
std::string pair_text(const RunPair& pair) {
  Rows fields{{"FIELD", "A", "B", "B - A"}};
  Rows tensors{{"TENSOR", "SHAPE", "FIRST AT", "A", "B", "LARGEST |B - A|", "RELATIVE", "ELEMENTS"}};
  const RecordDivergence& r = pair.records;
  const CheckpointDivergence& c = pair.checkpoints;
  for (size_t i = 0; i < std::min(kMostRows, r.fields.size()); ++i)
    fields.push_back({str(r.split, " ", r.fields[i].name), format("%.6g", r.fields[i].a), format("%.6g", r.fields[i].b),
                      signed_number(r.fields[i].b - r.fields[i].a)});
  for (size_t i = 0; i < std::min(kMostRows, c.different.size()); ++i) tensors.push_back(tensor_cells(c.different[i]));
  std::string text = fit(records_line(r) + "\n") + fit(checkpoints_line(c) + "\n");
  for (const auto& [rows, all] : {std::pair(fields, r.fields.size()), std::pair(tensors, c.different.size())}) {
    if (rows.size() > 1) text += "\n" + table(rows);
    if (all > kMostRows) text += fit(str("... ", all - kMostRows, " more; --json lists all\n"));
  }
  return text;
}

// A line for each pair of equal seeds.
std::string seeds_text(const std::vector<RunPair>& pairs) {
  Rows rows{{"SEED", "METRICS DIFFER AT STEP", "FIRST FIELD", "TENSORS DIFFER AT STEP", "FIRST TENSOR"}};
  for (const RunPair& p : pairs) {
    const RecordDivergence& r = p.records;
    const CheckpointDivergence& c = p.checkpoints;
    const bool fields = !r.fields.empty(), tensors = !c.different.empty();
    rows.push_back({p.seed,
                    fields       ? std::to_string(r.step)
                    : r.compared ? "none"
                                 : "-",
                    fields ? r.split + " " + r.fields[0].name : "",
                    c.step            ? std::to_string(*c.step)
                    : c.equal.empty() ? "-"
                                      : "none",
                    tensors ? c.different[0].name : ""});
  }
  return table(rows) + fit("none: all of equal steps are equal; -: there are none of equal steps\n");
}

std::string mean_text(const std::vector<double>& values) {
  const std::optional<double> half = half_interval(values);
  return format("%.5g", mean_of(values)) + (half ? " ± " + format("%.2g", *half) : "");
}

std::string difference_text(const Difference& d) {
  return signed_number(d.mean) + (d.half_interval ? " ± " + format("%.2g", *d.half_interval) : "");
}

std::string curve_notes(const Sides& sides) {
  const std::string test = sides.paired ? "that of pairs of equal seeds" : "by Welch's test, because the seeds differ";
  const CurvePoint& last = sides.curve.back();
  const std::optional<bool> significant = last.difference.significant();
  if (!significant) return fit("The noise between seeds is not known, because a side has one run.\n");
  return fit(str("Means over ", sides.a.size(), " and ", sides.b.size(),
                 " seeds ± half of the 95 % interval (Student's t); B - A is ", test,
                 ". * marks a difference beyond the noise between seeds; each step is tested by itself, so one in ",
                 std::lround(1 / kSignificant), " is marked by chance.\n")) +
         fit(str("At step ", last.step, ", the last one of all runs, ", sides.metric,
                 *significant ? " differs" : " does not differ", " beyond the noise between seeds: B - A is ",
                 difference_text(last.difference), ".\n"));
}

std::string curve_text(const Sides& sides) {
  if (!sides.several() && !sides.differ()) return "";
  const size_t points = sides.curve.size(), shown = std::min(points, kMostSteps);
  if (points == 0) return "\n" + fit(str(sides.metric, ": there is no step at which all runs have it\n"));
  Rows rows{{sides.metric + " AT STEP", "A", "B", "B - A"}};
  for (size_t i = 0; i < shown; ++i) {
    const CurvePoint& p = sides.curve[shown == 1 ? points - 1 : i * (points - 1) / (shown - 1)];
    rows.push_back({std::to_string(p.step), mean_text(p.a), mean_text(p.b),
                    difference_text(p.difference) + (p.difference.significant().value_or(false) ? " *" : "")});
  }
  return "\n" + table(rows) + (sides.several() ? curve_notes(sides) : "");
}

Json differences_json(const std::vector<SideDifference>& differences) {
  Json json = Json::array();
  for (const SideDifference& d : differences) json.push_back({{"key", d.name}, {"a", d.a}, {"b", d.b}});
  return json;
}

Json records_json(const RecordDivergence& r) {
  Json json{{"compared", r.compared}};
  if (r.equal_until) json["equal_until"] = *r.equal_until;
  if (r.fields.empty()) return json;
  json["step"] = r.step;
  json["split"] = r.split;
  json["fields"] = Json::array();
  for (const FieldDifference& f : r.fields)
    json["fields"].push_back({{"field", f.name}, {"a", json_number(f.a)}, {"b", json_number(f.b)}});
  return json;
}

Json tensor_json(const TensorDifference& d) {
  Json json{{"tensor", d.name}, {"shape_a", d.shape_a}, {"shape_b", d.shape_b}};
  if (d.shape_a != d.shape_b) return json;
  json["index"] = d.index;
  json["elements"] = d.elements;
  for (const auto& [key, value] : {std::pair{"a", d.a}, {"b", d.b}, {"max_abs", d.max_abs}, {"relative", d.relative}})
    json[key] = json_number(value);
  return json;
}

Json checkpoints_json(const CheckpointDivergence& c) {
  Json json{{"equal", c.equal}};
  if (!c.step) return json;
  json["step"] = *c.step;
  json["tensors"] = c.tensors;
  json["different"] = Json::array();
  for (const TensorDifference& d : c.different) json["different"].push_back(tensor_json(d));
  json["only_a"] = c.only_a;
  json["only_b"] = c.only_b;
  return json;
}

Json side_json(const std::vector<double>& values) {
  Json json{{"values", Json::array()}, {"mean", json_number(mean_of(values))}};
  for (const double v : values) json["values"].push_back(json_number(v));
  put(json, "half_interval", half_interval(values));
  return json;
}

Json point_json(const CurvePoint& p) {
  Json json{{"step", p.step}, {"a", side_json(p.a)}, {"b", side_json(p.b)}};
  json["difference"] = {{"mean", json_number(p.difference.mean)}};
  put(json["difference"], "half_interval", p.difference.half_interval);
  if (const auto significant = p.difference.significant()) json["difference"]["significant"] = *significant;
  return json;
}

}  // namespace

std::string text_of(const Sides& sides) {
  const std::string recipe = differences_text("RECIPE", sides.recipe, "The recipes are equal.");
  const std::string provenance =
      differences_text("PROVENANCE", sides.provenance, "Data, build, machine and ranks are equal.");
  std::string text = table({{"SIDE", "RUNS"}, {"A", joined(sides.a, " ")}, {"B", joined(sides.b, " ")}}) + "\n" +
                     recipe + "\n" + provenance;
  if (!sides.several())
    text += "\n" + pair_text(sides.pairs[0]);
  else if (!sides.pairs.empty())
    text += "\n" + seeds_text(sides.pairs);
  return text + curve_text(sides);
}

Json json_of(const Sides& sides) {
  Json json{{"a", sides.a},
            {"b", sides.b},
            {"differ", sides.differ()},
            {"recipe", differences_json(sides.recipe)},
            {"provenance", differences_json(sides.provenance)},
            {"pairs", Json::array()}};
  for (const RunPair& p : sides.pairs)
    json["pairs"].push_back({{"a", p.a},
                             {"b", p.b},
                             {"equal", p.equal()},
                             {"metrics", records_json(p.records)},
                             {"checkpoints", checkpoints_json(p.checkpoints)}});
  json["metric"] = sides.metric;
  json["paired"] = sides.paired;
  json["curve"] = Json::array();
  for (const CurvePoint& p : sides.curve) json["curve"].push_back(point_json(p));
  return json;
}

}  // namespace lmx::app::report
