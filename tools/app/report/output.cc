#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/print/terminal.h"
#include "app/records/records.h"
#include "app/report/compare.h"
#include "app/report/report.h"
#include "base/text.h"
#include "lmx/error.h"
#include "sync/unit_queue.h"

namespace lmx::app::report {

using Rows = std::vector<std::vector<std::string>>;

std::string bytes(double n) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; n >= 999.5 && unit < 4; ++unit) n /= 1000;
  return str(format(n < 9.995 && unit > 0 ? "%.2f" : n < 99.95 && unit > 0 ? "%.1f" : "%.0f", n), " ", units[unit]);
}

Rows result_rows(const Report& r) {
  Rows rows;
  const auto add = [&](const char* name, const std::optional<RunRecord>& record, const char* key) {
    if (record && record->values.contains(key))
      rows.push_back({name, format("%.6g", record->at(key)), std::to_string(record->step)});
  };
  add("valid ppl", r.valid, "ppl");
  add("best valid ppl", r.best, "ppl");
  if (r.translation) {
    add((r.translation->split + " BLEU").c_str(), r.translation, "BLEU");
    add((r.translation->split + " multi-bleu").c_str(), r.translation, "multi_bleu");
    add((r.translation->split + " multi-bleu-split").c_str(), r.translation, "multi_bleu_split");
  }
  add("valid nll_nat", r.valid, "nll_nat");
  add("valid nll_bit", r.valid, "nll_bit");
  if (r.valid)  // those of metrics have names with labels
    for (const auto& [key, value] : r.valid->values)
      if (key.find('/') != std::string::npos) add(("valid " + key).c_str(), r.valid, key.c_str());
  add("train nll_nat", r.train, "nll_nat");
  add("lr", r.train, "lr");
  add("grad_norm", r.train, "grad_norm");
  add("step_s", r.train, "step_s");
  if (r.train) {
    for (const auto& [key, value] : r.train->values)
      if (key.ends_with("s_per_s")) add(key.c_str(), r.train, key.c_str());
  }
  return rows;
}

namespace {

// "fp32", or "fp32, products tf32".
std::string precision_text(const Report& r) {
  const std::string precision = start_text(r, "/compute/precision"), products = start_text(r, "/compute/products");
  return products == "exact" || products == "?" ? precision : str(precision, ", products ", products);
}

void print_run(const Report& r) {
  Rows rows{{"run", r.directory},
            {"started", str(start_text(r, "/time"), r.starts > 1 ? str(" (start ", r.starts, ")") : "")},
            {"lmx", start_text(r, "/lmx/version")},
            {"state", str(state_text(r), r.status.reason.empty() ? "" : ": ", r.status.reason)},
            {"host", str(start_text(r, "/host/name"), ", ", start_text(r, "/host/cpu"))},
            {"compute", str(start_text(r, "/compute/device"), " (", start_text(r, "/compute/isa"), "), ",
                            precision_text(r), ", ", plural(r.ranks, "rank"))},
            {"data", start_text(r, "/data/source")},
            {"parameters", start_text(r, "/parameters")},
            {"step", std::to_string(r.step)}};
  std::cout << table(rows);
}

void print_metrics(const Report& r) {
  Rows rows = result_rows(r);
  for (const auto& [key, value] : r.strategy)
    rows.push_back({key, format("%.6g", value), r.train ? std::to_string(r.train->step) : ""});
  if (rows.empty()) return;
  rows.insert(rows.begin(), {"METRIC", "VALUE", "STEP"});
  std::cout << "\n" << table(rows);
}

void print_traffic(const Report& r) {
  if (r.traffic.empty()) return;
  Rows rows{{"GROUP", "COLLECTIVE", "SENT PER RANK AND STEP", "MOST OF A RANK", "RECEIVED", "ALL RANKS AND STEPS"}};
  TrafficLine all;
  for (const auto& [key, line] : r.traffic)
    if (line.between_nodes) all.between_nodes = all.between_nodes.value_or(0) + *line.between_nodes;
  if (all.between_nodes) rows[0].push_back("SENT TO OTHER NODES");
  for (const auto& [key, line] : r.traffic) {
    rows.push_back({key.first, key.second, bytes(line.mean), bytes(line.max), bytes(line.received), bytes(line.total)});
    if (all.between_nodes) rows.back().push_back(bytes(line.between_nodes.value_or(0)));
    all.mean += line.mean;
    all.received += line.received;
    all.total += line.total;
  }
  rows.push_back({"all", "", bytes(all.mean), "", bytes(all.received), bytes(all.total)});
  if (all.between_nodes) rows.back().push_back(bytes(*all.between_nodes));
  std::cout << "\n" << table(rows);
}

std::string seconds(double s) {
  return format(s < 0.0995 ? "%.2f ms" : "%.0f ms", s * 1000);
}

void print_times(const Report& r) {
  if (r.ranks < 2) return;
  if (!r.on_a_wire) {
    std::cout << fit("\nNo time of communication is shown: virtual ranks share the cores of this machine.\n");
    return;
  }
  const CommTimes& t = r.times;
  Rows rows{{"COMMUNICATION, A STEP OF RANK 0", "TIME"},
            {"exchange of gradients or values", seconds(t.busy)},
            {"hidden behind computation", seconds(t.hidden())},
            {"exposed", seconds(t.exposed)}};
  if (!t.units.empty()) rows.push_back({"could be hidden", seconds(t.possible)});
  std::cout << "\n" << table(rows);
  if (t.units.empty()) return;
  rows = {{"UNIT, MEAN OF RANKS", "BYTES", "READY", "BEGINS", "ENDS", "HIDDEN", "EXPOSED"}};
  for (const UnitTimes& u : t.units)
    rows.push_back({u.first, bytes(u.bytes), seconds(u.ready), seconds(u.begin), seconds(u.end), seconds(u.hidden),
                    seconds(u.exposed)});
  std::cout << "\n" << table(rows);
}

void print_sub_batches(const Report& r) {
  const SubBatches& s = r.sub_batches;
  if (s.empty()) return;
  Rows rows{{"SUB-BATCHES", "VALUE"},
            {"forward and backward, mean", seconds(s.mean())},
            {"shortest 10 % within", seconds(s.quantile(0.1))},
            {"90 % within", seconds(s.quantile(0.9))},
            {"longest", seconds(s.quantile(1))}};
  if (r.train && r.train->values.contains("padding"))
    rows.push_back({"padding would be", format("%.1f %%", 100 * r.train->at("padding"))});
  if (r.train && r.train->values.contains("step_spread"))
    rows.push_back({"slowest rank above the mean", format("%.1f %%", 100 * r.train->at("step_spread"))});
  std::cout << "\n" << table(rows);
}

void print_memory(const Report& r) {
  if (r.memory.empty()) return;
  const bool several = r.rank_memory.size() > 1;
  Rows rows{{"MEMORY, PEAK", "RANK 0"}};
  if (several) rows[0].emplace_back("MOST OF A RANK");
  const auto add = [&](const std::string& name, const MemoryLine& line) {
    rows.push_back({name, bytes(line.first)});
    if (several) rows.back().push_back(bytes(line.max));
  };
  for (const auto& [name, line] : r.memory)
    if (name != "total") add(name, line);
  if (const auto total = r.memory.find("total"); total != r.memory.end()) add("all together", total->second);
  std::cout << "\n"
            << table(rows) << fit("The classes add up to more than the total, because their peaks differ in time.\n");
}

void print_rows(const Report& r) {
  if (r.rows.empty()) return;
  Rows rows{{"TABLE", "ROWS AN UPDATE TOUCHES (U_g)"}};
  for (const auto& [name, value] : r.rows) rows.push_back({name, format("%.1f", value)});
  std::cout << "\n" << table(rows);
}

// Prints the sums over all ranks and steps.
void print_codec(const Report& r) {
  if (r.codec.empty()) return;
  const bool feedback =
      std::any_of(r.codec.begin(), r.codec.end(), [](const auto& c) { return c.second.residual > 0; });
  Rows rows{{"CODEC", "ENTRIES", "UNDERFLOWS", "OVERFLOWS", "RELATIVE ERROR"}};
  if (feedback) rows[0].push_back("RESIDUAL NORM");
  for (const auto& [name, c] : r.codec) {
    rows.push_back({name, std::to_string(c.values), std::to_string(c.underflow), std::to_string(c.overflow),
                    format("%.4g", c.relative_error())});
    if (feedback) rows.back().push_back(format("%.4g", std::sqrt(c.residual)));
  }
  std::cout << "\n" << table(rows);
}

void print_staleness(const Report& r) {
  constexpr double kWidest = 40;  // characters of the longest bar
  for (const auto& [rule, histogram] : r.staleness) {
    double all = 0, most = 0;
    for (const auto& [behind, updates] : histogram) {
      all += updates;
      most = std::max(most, updates);
    }
    Rows rows{{"STALENESS, " + rule, "UPDATES", "SHARE", ""}};
    for (const auto& [behind, updates] : histogram)
      rows.push_back({std::to_string(behind), format("%.0f", updates), format("%.1f %%", 100 * updates / all),
                      std::string(static_cast<size_t>(std::ceil(kWidest * updates / most)), '#')});
    std::cout << "\n" << table(rows);
  }
}

}  // namespace

void print_text(const Report& r) {
  print_run(r);
  print_metrics(r);
  print_rows(r);
  print_traffic(r);
  print_times(r);
  print_sub_batches(r);
  print_memory(r);
  print_codec(r);
  print_staleness(r);
}

void print_comparison(const std::vector<Report>& runs) {
  std::vector<const Report*> all;
  for (const Report& r : runs) all.push_back(&r);
  const Comparison c = compare(all);
  std::cout << table(comparison_rows(runs, c));
  if (c.best_run < 0) return;
  std::cout << "\n"
            << fit(str(c.metric, " ", headline_value(c), "  (*: ", runs[static_cast<size_t>(c.best_run)].directory,
                       ")\n"));
}

namespace {

Json record_json(const std::optional<RunRecord>& record) {
  if (!record) return nullptr;
  Json json{{"step", record->step}};
  for (const auto& [key, value] : record->values) json[key] = json_number(value);
  return json;
}

Json times_json(const Report& r) {
  if (!r.on_a_wire) return nullptr;
  const CommTimes& t = r.times;
  Json json{{"busy_s", t.busy},
            {"hidden_s", t.hidden()},
            {"exposed_s", t.exposed},
            {"could_be_hidden_s", t.possible},
            {"units", Json::array()}};
  for (const UnitTimes& u : t.units)
    json["units"].push_back({{"first", u.first},
                             {"bytes", u.bytes},
                             {"ready_s", u.ready},
                             {"begin_s", u.begin},
                             {"end_s", u.end},
                             {"hidden_s", u.hidden},
                             {"exposed_s", u.exposed}});
  return json;
}

}  // namespace

void print_json(const Report& r) {
  Json json{{"format", 1},      {"run", r.directory},     {"step", r.step},
            {"ranks", r.ranks}, {"state", state_text(r)}, {"start", Json::parse(r.start)}};
  json["train"] = record_json(r.train);
  json["valid"] = record_json(r.valid);
  json["best"] = record_json(r.best);
  json["translation"] = record_json(r.translation);
  if (r.translation) json["translation"]["split"] = r.translation->split;
  json["traffic"] = Json::array();
  for (const auto& [key, line] : r.traffic) {
    json["traffic"].push_back({{"group", key.first},
                               {"collective", key.second},
                               {"sent_bytes_per_rank_and_step", line.mean},
                               {"sent_bytes_per_step_max", line.max},
                               {"received_bytes_per_rank_and_step", line.received},
                               {"sent_bytes_total", line.total}});
    if (line.between_nodes) json["traffic"].back()["sent_between_nodes_bytes_per_rank_and_step"] = *line.between_nodes;
  }
  json["comm_times"] = times_json(r);
  json["memory"] = Json::object();
  for (const auto& [name, line] : r.memory)
    json["memory"][name] = {{"rank_0_peak_bytes", line.first}, {"max_peak_bytes", line.max}};
  json["rows"] = r.rows;
  json["strategy"] = Json::object();
  for (const auto& [key, value] : r.strategy) json["strategy"][key] = json_number(value);
  json["codec"] = Json::object();
  for (const auto& [name, c] : r.codec)
    json["codec"][name] = {{"entries", c.values},
                           {"underflow", c.underflow},
                           {"overflow", c.overflow},
                           {"relative_error", json_number(c.relative_error())},
                           {"residual_norm", json_number(std::sqrt(c.residual))}};
  json["staleness"] = Json::object();
  for (const auto& [rule, histogram] : r.staleness)
    for (const auto& [behind, updates] : histogram) json["staleness"][rule][std::to_string(behind)] = updates;
  std::cout << json.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace lmx::app::report
