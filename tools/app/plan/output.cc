// The table that `lmx plan` prints, and a plan as JSON, CSV, SVG and HTML.
#include "app/plan/output.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/records/records.h"
#include "app/report/chart.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::plan {
namespace {

constexpr size_t kMostCandidates = 20;  // rows of --find

std::string optional(const std::optional<double>& value) {
  return value ? format("%.3g", *value) : "-";
}

std::string memory_of(const Row& row) {
  return str(bytes_text(row.memory.total()), row.out_of_memory ? " (out of memory)" : "");
}

// The columns that only some plans have.
struct Columns {
  bool variants = false, fit = false, workers = false, prices = false;
};

std::vector<std::string> cells_of(const Row& row, const Columns& columns) {
  std::vector<std::string> cells;
  if (columns.variants) cells.push_back(row.variant);
  for (const std::string& cell : {std::to_string(row.ranks), count_text(row.batch)}) cells.push_back(cell);
  if (columns.fit)
    cells.insert(cells.end(), {row.fit ? row.fit->text() : "-", row.fit ? count_text(row.fit->passes) : "-"});
  for (const std::string& cell :
       {memory_of(row), bytes_text(row.node_bytes), bytes_text(row.network_bytes), seconds_text(row.time.compute_s),
        seconds_text(row.time.hidden_s()), seconds_text(row.time.exposed_s), seconds_text(row.time.step_s()),
        count_text(std::llround(row.tokens_s())), format("%.0f", 100 * row.efficiency) + " %",
        optional(row.epoch_hours), optional(row.total_hours)})
    cells.push_back(cell);
  if (columns.workers && row.workers)
    cells.insert(cells.end(), {format("%.3g", row.workers->updates_s), format("%.3g", row.workers->staleness),
                               format("%.3g", row.workers->speedup)});
  else if (columns.workers)
    cells.insert(cells.end(), {"-", "-", "-"});
  if (columns.prices) cells.push_back(row.epoch_price ? format("%.0f", *row.epoch_price) : "-");
  return cells;
}

std::string bandwidth_text(double gb_s) {
  const double gbit = 8 * gb_s;
  return gbit >= 1 ? format("%.3g", gbit) + " Gbit/s" : format("%.3g", 1000 * gbit) + " Mbit/s";
}

// "pairwise", or the name for each variant; "" if all variants are asynchronous.
std::string collectives_of(const Plan& plan) {
  std::string all;
  std::set<std::string> names;
  for (const Row& row : plan.rows) {
    if (row.workers) continue;
    names.insert(name_of(row.algorithm));
    if (row.ranks == plan.rows[0].ranks)
      all += str(all.empty() ? "" : ", ", name_of(row.algorithm), row.variant.empty() ? "" : " with ", row.variant);
  }
  return names.size() == 1 ? *names.begin() : all;
}

// "plan of tiny on h100_node: 8 H100 ...".
std::string title_of(const Plan& plan) {
  return str("plan of ", plan.recipe, " on ", plan.machine_name, ": ", plan.machine.name, "\n");
}

std::string assumptions_of(const Plan& plan) {
  std::string text;
  for (const std::string& line : plan.speeds) text += line + "\n";
  if (const std::string names = collectives_of(plan); !names.empty()) text += "collectives: " + names + "\n";
  for (const std::string& note : plan.notes) text += "assumed: " + note + "\n";
  return text;
}

bool has_variants(const Plan& plan) {
  return !plan.rows.empty() && !plan.rows[0].variant.empty();
}

std::string goal_text(const Goal& goal, const std::string& currency) {
  std::string text = count_text(std::llround(goal.tokens)) + " tokens";
  if (goal.hours) text += " within " + format("%.6g", *goal.hours) + " h";
  if (goal.price) text += str(goal.hours ? " and " : " for ", format("%.6g", *goal.price), " ", currency);
  return text;
}

std::string candidates_table(const Plan& plan, const std::vector<Candidate>& candidates) {
  const bool prices = candidates[0].price.has_value();
  std::vector<std::vector<std::string>> rows{{}};
  if (has_variants(plan)) rows[0].push_back("VARIANT");
  rows[0].insert(rows[0].end(), {"RANKS", "BATCH", "MEMORY", "SENT/STEP", "STEP", "STEPS", "HOURS", "NODE HOURS"});
  if (prices) rows[0].push_back(plan.machine.price.currency);
  for (const Candidate& c : candidates) {
    if (rows.size() > kMostCandidates) break;
    std::vector<std::string>& cells = rows.emplace_back();
    if (has_variants(plan)) cells.push_back(c.row.variant);
    cells.insert(cells.end(), {std::to_string(c.row.ranks), count_text(c.row.batch), memory_of(c.row),
                               bytes_text(c.row.sent_bytes), seconds_text(c.row.time.step_s()), format("%.6g", c.steps),
                               format("%.3g", c.hours), format("%.3g", c.node_hours)});
    if (prices) cells.push_back(format("%.3g", c.price.value_or(0)));
  }
  return table(rows);
}

// "3 are too slow, 2 are out of memory"; "" if all reach the goal.
std::string refused_text(const Found& found) {
  std::vector<std::string> reasons;
  for (const auto& [count, reason] : {std::pair{found.too_slow, "too slow"},
                                      {found.too_expensive, "too expensive"},
                                      {found.out_of_memory, "out of memory"}})
    if (count > 0) reasons.push_back(str(count, count == 1 ? " is " : " are ", reason));
  return joined(reasons);
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds >= 100) return format("%.0f", seconds) + " s";
  return seconds >= 0.1 || seconds == 0 ? format("%.3g", seconds) + " s" : format("%.3g", 1000 * seconds) + " ms";
}

std::string text_of(const Plan& plan, bool terminal) {
  const Columns columns{has_variants(plan),
                        std::any_of(plan.rows.begin(), plan.rows.end(), [](const Row& r) { return !!r.fit; }),
                        std::any_of(plan.rows.begin(), plan.rows.end(), [](const Row& r) { return !!r.workers; }),
                        plan.machine.price.node_hour > 0};
  std::vector<std::vector<std::string>> rows{{}};
  if (columns.variants) rows[0].push_back("VARIANT");
  rows[0].insert(rows[0].end(), {"RANKS", "BATCH"});
  if (columns.fit) rows[0].insert(rows[0].end(), {"PASS", "PASSES"});
  for (const char* head : {"MEMORY", "IN NODE", "NETWORK", "COMPUTE", "HIDDEN", "EXPOSED", "STEP", "TOKENS/S",
                           "EFFICIENCY", "HOURS/EPOCH", "HOURS"})
    rows[0].push_back(head);
  if (columns.workers) rows[0].insert(rows[0].end(), {"UPDATES/S", "STALENESS", "SPEED-UP"});
  if (columns.prices) rows[0].push_back(plan.machine.price.currency + "/EPOCH");
  for (const Row& row : plan.rows) rows.push_back(cells_of(row, columns));
  std::string text = title_of(plan) + (terminal ? table(rows) : table(rows, 0));
  for (const Winner& w : plan.winners)
    text += str(plural(w.ranks, "rank"), ": ", w.variant, w.variant.empty() ? "" : ": ", w.reason, "\n");
  for (const Crossing& c : plan.crossings)
    text += str("on ", c.ranks, " ranks ", c.below, " pays below ", bandwidth_text(c.gb_s), " between nodes, ", c.above,
                " above\n");
  text += assumptions_of(plan);
  return terminal ? app::fit(text) : text;
}

std::string text_of(const Plan& plan, const Found& found) {
  std::string text = title_of(plan);
  const std::string goal = goal_text(found.goal, plan.machine.price.currency), refused = refused_text(found);
  if (found.nearest) {
    const Candidate& c = *found.nearest;
    text +=
        str("no plan of ", plan.rows.size(), " reaches ", goal, ": ", refused, "\nthe nearest one ",
            c.row.out_of_memory ? "needs the least memory" : "takes " + format("%.3g", c.excess) + " times the limit",
            ":\n", candidates_table(plan, {c}));
  } else {
    text += str(found.met.size(), " of ", plan.rows.size(), " plans ", found.met.size() == 1 ? "reaches " : "reach ",
                goal, refused.empty() ? "" : "; ", refused, "\n", candidates_table(plan, found.met));
    if (found.met.size() > kMostCandidates)
      text += str("and ", found.met.size() - kMostCandidates, " more, which --json prints\n");
  }
  text += assumptions_of(plan);
  text +=
      "assumed: equal tokens are equal quality. They are not: with the same tokens, other methods, periods and batches "
      "reach other losses, as docs/experiments/beyond.md measured. Nothing was trained for this plan\n";
  return app::fit(text);
}

// A plan as JSON, CSV, SVG and HTML.

namespace {

using app::json_number;
using app::put;

Json row_json(const Row& row) {
  const RankMemory& m = row.memory;
  Json classes;
  for (const auto& [name, bytes] : m.classes()) classes[name] = bytes;
  Json one{{"variant", row.variant},
           {"ranks", row.ranks},
           {"batch", row.batch},
           {"step_tokens", json_number(row.step_tokens)},
           {"memory_bytes", m.total()},
           {"memory", classes},
           {"out_of_memory", row.out_of_memory},
           {"sent_bytes", row.sent_bytes},
           {"node_bytes", row.node_bytes},
           {"network_bytes", row.network_bytes}};
  if (row.fit) {
    one[row.fit->pairs ? "micro_tokens" : "micro"] = row.fit->size;
    one["passes"] = row.fit->passes;
  }
  for (const auto& [key, value] : {std::pair{"compute_s", row.time.compute_s},
                                   {"wait_s", row.time.wait_s},
                                   {"comm_s", row.time.comm_s},
                                   {"hidden_s", row.time.hidden_s()},
                                   {"exposed_s", row.time.exposed_s},
                                   {"step_s", row.time.step_s()},
                                   {"tokens_per_s", row.tokens_s()},
                                   {"efficiency", row.efficiency},
                                   {"speed", row.speed}})
    one[key] = json_number(value);
  put(one, "hours_per_epoch", row.epoch_hours);
  put(one, "hours", row.total_hours);
  put(one, "price_per_epoch", row.epoch_price);
  if (row.workers)
    for (const auto& [key, value] : {std::pair{"updates_per_s", row.workers->updates_s},
                                     {"staleness_mean", row.workers->staleness},
                                     {"staleness_max", static_cast<double>(row.workers->most_stale)},
                                     {"speedup", row.workers->speedup}})
      one[key] = json_number(value);
  return one;
}

Json candidate_json(const Candidate& c) {
  Json json;
  for (const auto& [key, value] : {std::pair{"steps", c.steps}, {"hours", c.hours}, {"node_hours", c.node_hours}})
    json[key] = json_number(value);
  put(json, "price", c.price);
  json["plan"] = row_json(c.row);
  return json;
}

std::string name_of_variant(const std::string& variant) {
  return variant.empty() ? "this recipe" : variant;
}

// Tokens a second over ranks, a curve for each variant.
std::string ranks_chart(const Plan& plan) {
  Chart chart{.title = str(plan.recipe, " on ", plan.machine_name),
              .x_title = "ranks",
              .y_title = "tokens a second",
              .log_x = true,
              .log_y = true,
              .series = {},
              .names = {}};
  for (const Row& row : plan.rows) {
    if (chart.series.empty() || chart.series.back().label != name_of_variant(row.variant))
      chart.series.push_back({.label = name_of_variant(row.variant), .points = {}});
    if (row.out_of_memory) continue;
    chart.series.back().points.push_back({static_cast<double>(row.ranks), row.tokens_s(), 0,
                                          str(count_text(std::llround(row.tokens_s())), " tokens/s on ", row.ranks)});
  }
  return svg(chart);
}

std::string bandwidth_chart(const Plan& plan) {
  Chart chart{.title = str(plan.curves[0].ranks, " ranks, by the bandwidth between nodes"),
              .x_title = "Gbit/s of a node",
              .y_title = "tokens a second",
              .log_x = true,
              .log_y = true,
              .series = {},
              .names = {}};
  for (const Curve& curve : plan.curves) {
    chart.series.push_back({.label = name_of_variant(curve.variant), .points = {}, .dots = false});
    for (const auto& [gb_s, tokens_s] : curve.points) chart.series.back().points.push_back({8 * gb_s, tokens_s, 0, ""});
  }
  return svg(chart);
}

// The keys of all rows, without objects: only asynchronous rows have those of workers.
std::vector<std::string> columns_of(const Json& rows) {
  std::vector<std::string> keys;
  for (const Json& row : rows)
    for (const auto& [key, value] : row.items())
      if (!value.is_object() && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  return keys;
}

// Numbers are for reading: four digits. The files .json and .csv have all of them.
std::string html_cell(const Json& value) {
  if (value.is_string()) return escaped(value.get<std::string>());
  if (value.is_number_float() && std::fabs(value.get<double>()) < 1e4) return format("%.4g", value.get<double>());
  if (value.is_number_float()) return count_text(std::llround(value.get<double>()));
  return value.is_number_integer() ? count_text(value.get<int64_t>()) : value.dump();
}

std::string html_table(const Json& rows) {
  const std::vector<std::string> columns = columns_of(rows);
  std::string text = "<table class='values'><tr>";
  for (const std::string& key : columns) text += "<th>" + escaped(key) + "</th>";
  text += "</tr>\n";
  for (const Json& row : rows) {
    text += row["out_of_memory"].get<bool>() ? "<tr class='out'>" : "<tr>";
    for (const std::string& key : columns) {
      const Json& cell = row.contains(key) ? row[key] : Json("");
      text += "<td>" + html_cell(cell) + "</td>";
    }
    text += "</tr>\n";
  }
  return text + "</table>\n";
}

}  // namespace

Json json_of(const Plan& plan) {
  Json rows = Json::array();
  for (const Row& row : plan.rows) rows.push_back(row_json(row));
  return rows;
}

Json json_of(const Found& found) {
  Json json{{"tokens", json_number(found.goal.tokens)}};
  put(json, "hours", found.goal.hours);
  put(json, "price", found.goal.price);
  json["met"] = Json::array();
  for (const Candidate& c : found.met) json["met"].push_back(candidate_json(c));
  if (found.nearest) json["nearest"] = candidate_json(*found.nearest);
  json["out_of_memory"] = found.out_of_memory;
  json["too_slow"] = found.too_slow;
  json["too_expensive"] = found.too_expensive;
  return json;
}

namespace {

// The same values as a table with a header.
std::string csv_of(const Plan& plan) {
  const Json rows = json_of(plan);
  const std::vector<std::string> columns = columns_of(rows);
  std::string text = joined(columns, ",");
  for (const Json& row : rows) {
    std::string line;
    for (const std::string& key : columns)
      line += (line.empty() ? "" : ",") + (!row.contains(key)     ? ""
                                           : row[key].is_string() ? csv_cell(row[key])
                                                                  : row[key].dump());
    text += "\n" + line;
  }
  return text + "\n";
}

// A complete page: both charts, the table, the machine with the source of each value.
std::string html_of(const Plan& plan) {
  const std::string title = str("Plan of ", plan.recipe, " on ", plan.machine_name);
  std::string body =
      "<h1>" + escaped(title) + "</h1>\n<pre>" + escaped(text_of(plan, false)) + "</pre>\n" + ranks_chart(plan);
  if (!plan.curves.empty()) body += bandwidth_chart(plan);
  body += "\n<h2>Values</h2>\n" + html_table(json_of(plan)) +
          "<p>Rows in red do not fit into the device's memory.</p>\n<h2>Machine</h2>\n<pre>" +
          escaped(to_yaml(write_config(plan.machine))) + "</pre>\n";
  return html_document(title, body);
}

std::string json_text(const Plan& plan) {
  return json_of(plan).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The writer of the format that the ending of the path names. UserError: no format has this ending.
std::string (*writer_of(const std::string& path))(const Plan&) {
  const std::string ending = std::filesystem::path(path).extension().string();
  for (const auto& [known, writer] :
       {std::pair{".json", &json_text}, {".csv", &csv_of}, {".svg", &ranks_chart}, {".html", &html_of}})
    if (ending == known) return writer;
  throw UserError(str("[plan] --out ", path, ": a plan is written as .json, .csv, .svg or .html"));
}

}  // namespace

void check_ending(const std::string& path) {
  writer_of(path);
}

std::string file_of(const Plan& plan, const std::string& path) {
  return writer_of(path)(plan);
}

}  // namespace lmx::app::plan
