// A plan as JSON, CSV, SVG and HTML.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/plan/output.h"
#include "app/records/records.h"
#include "app/report/chart.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::plan {
namespace {

using lmx_cli::Json;
using lmx_cli::json_number;
using lmx_cli::put;

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

std::string csv_cell(const Json& value) {
  if (!value.is_string()) return value.dump();
  std::string text = "\"";
  for (const char c : value.get<std::string>()) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

std::string name_of_variant(const std::string& variant) {
  return variant.empty() ? "this recipe" : variant;
}

std::string ranks_chart(const Plan& plan) {
  lmx_cli::Chart chart{.title = str(plan.recipe, " on ", plan.machine_name),
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
  return lmx_cli::svg(chart);
}

std::string bandwidth_chart(const Plan& plan) {
  lmx_cli::Chart chart{.title = str(plan.curves[0].ranks, " ranks, by the bandwidth between nodes"),
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
  return lmx_cli::svg(chart);
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
  if (value.is_string()) return lmx_cli::escaped(value.get<std::string>());
  if (value.is_number_float() && std::fabs(value.get<double>()) < 1e4) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value.get<double>());
    return text;
  }
  if (value.is_number_float()) return count_text(std::llround(value.get<double>()));
  return value.is_number_integer() ? count_text(value.get<int64_t>()) : value.dump();
}

std::string html_table(const Json& rows) {
  const std::vector<std::string> columns = columns_of(rows);
  std::string text = "<div class='scroll'><table><tr>";
  for (const std::string& key : columns) text += "<th>" + lmx_cli::escaped(key) + "</th>";
  text += "</tr>\n";
  for (const Json& row : rows) {
    text += row["out_of_memory"].get<bool>() ? "<tr class='out'>" : "<tr>";
    for (const std::string& key : columns) {
      const Json& cell = row.contains(key) ? row[key] : Json("");
      text += "<td>" + html_cell(cell) + "</td>";
    }
    text += "</tr>\n";
  }
  return text + "</table></div>\n";
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

std::string csv_of(const Plan& plan) {
  const Json rows = json_of(plan);
  const std::vector<std::string> columns = columns_of(rows);
  std::string text;
  for (const std::string& key : columns) text += (text.empty() ? "" : ",") + key;
  for (const Json& row : rows) {
    std::string line;
    for (const std::string& key : columns)
      line += (line.empty() ? "" : ",") + (row.contains(key) ? csv_cell(row[key]) : "");
    text += "\n" + line;
  }
  return text + "\n";
}

std::string svg_of(const Plan& plan) {
  return ranks_chart(plan);
}

std::string html_of(const Plan& plan) {
  const std::string title = lmx_cli::escaped(str("Plan of ", plan.recipe, " on ", plan.machine_name));
  std::string text = str("<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>", title,
                         "</title>\n<style>body{font:15px sans-serif;margin:2em;max-width:80em}"
                         "table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #bbb;padding:3px 6px;"
                         "text-align:right}.scroll{overflow-x:auto}svg{max-width:100%;height:auto}.out{color:#a00}pre{"
                         "background:#f4f4f4;padding:1em;overflow:auto}</style></head>"
                         "<body>\n<h1>",
                         title, "</h1>\n<pre>", lmx_cli::escaped(text_of(plan, false)), "</pre>\n", ranks_chart(plan));
  if (!plan.curves.empty()) text += bandwidth_chart(plan);
  text +=
      "\n<h2>Values</h2>\n" + html_table(json_of(plan)) + "<p>Rows in red do not fit into the device's memory.</p>\n";
  text +=
      "<h2>Machine</h2>\n<pre>" + lmx_cli::escaped(to_yaml(write_config(plan.machine))) + "</pre>\n</body></html>\n";
  return text;
}

namespace {

std::string json_text(const Plan& plan) {
  return json_of(plan).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The writer of the format that the ending of the path names. UserError: no format has this ending.
std::string (*writer_of(const std::string& path))(const Plan&) {
  const std::string ending = std::filesystem::path(path).extension().string();
  for (const auto& [known, writer] :
       {std::pair{".json", &json_text}, {".csv", &csv_of}, {".svg", &svg_of}, {".html", &html_of}})
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

}  // namespace lmx::plan
