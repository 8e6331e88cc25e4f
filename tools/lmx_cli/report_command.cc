// lmx report: what a run came to, from its metrics.jsonl and provenance.json.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "comm_times.h"
#include "commands.h"
#include "lmx/checkpoint.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "run_records.h"
#include "sub_batches.h"

namespace lmx_cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;
using lmx::str;

struct Options {
  std::string run, charts;
  bool json = false;
};

// Bytes of one group of parameters in one collective, a rank and step.
struct TrafficLine {
  double mean = 0, max = 0, total = 0;  // of ranks, sent per step; of all ranks and steps together
  double received = 0;                  // mean of ranks, per step
};

struct MemoryLine {
  double first = 0, max = 0;  // rank 0, any rank
};

struct Report {
  std::string directory;
  Json start;  // the last of provenance.json
  size_t starts = 0;
  int64_t step = 0;  // of the last record
  size_t ranks = 1;
  std::optional<RunRecord> train, valid, best;
  std::map<std::string, double> rows, codec;                           // means over the run, by parameter
  std::map<std::pair<std::string, std::string>, TrafficLine> traffic;  // by group and collective
  std::map<std::string, MemoryLine> memory;                            // by class
  bool on_a_wire = false;  // ranks are processes; virtual ones share cores, and their times tell nothing
  CommTimes times;
  SubBatches sub_batches;
};

std::string number(double value, const char* format = "%.4g") {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string bytes(double n) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; n >= 999.5 && unit < 4; ++unit) n /= 1000;
  return str(number(n, n < 9.995 && unit > 0 ? "%.2f" : n < 99.95 && unit > 0 ? "%.1f" : "%.0f"), " ", units[unit]);
}

void read_provenance(Report& report) {
  const std::string path = report.directory + "/provenance.json";
  const Json all = Json::parse(std::ifstream(path), nullptr, false);
  if (!all.is_object() || !all.contains("starts") || !all["starts"].is_array() || all["starts"].empty())
    throw lmx::UserError(str("[report] ", path, " is missing or damaged"));
  report.starts = all["starts"].size();
  report.start = all["starts"].back();
}

void read_own_metrics(Report& report, const std::vector<RunRecord>& records) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const RunRecord& r : records) {
    report.step = std::max(report.step, r.step);
    if (r.split == "train") report.train = r;
    if (r.split == "valid") {
      report.valid = r;
      if (!report.best || r.at("ppl", INFINITY) < report.best->at("ppl", INFINITY)) report.best = r;
    }
    for (const auto& [key, value] : r.values) {
      if (!key.starts_with("rows/") && !key.starts_with("codec/")) continue;
      sums[key].first += value;
      ++sums[key].second;
    }
  }
  for (const auto& [key, sum] : sums)
    (key[0] == 'r' ? report.rows : report.codec)[key.substr(key.find('/') + 1)] = sum.first / sum.second;
}

// The ledger: each rank's records hold its bytes since the one before.
void read_ranks(Report& report, const std::vector<RunRecord>& records) {
  struct Sum {
    double sent = 0, received = 0;
  };
  std::map<int64_t, std::map<std::pair<std::string, std::string>, Sum>> by_rank;
  std::map<int64_t, double> steps;
  std::map<int64_t, std::map<std::string, double>> memory;
  for (const RunRecord& r : records) {
    if (r.split != "rank") continue;
    const auto rank = static_cast<int64_t>(r.at("rank"));
    steps[rank] += r.at("steps");
    for (const auto& [key, value] : r.values) {
      const size_t first = key.find('/'), last = key.rfind('/');
      if (key.starts_with("memory/")) memory[rank][key.substr(7, key.rfind("_peak_bytes") - 7)] = value;
      if (!key.starts_with("comm/") || first == last) continue;
      const size_t middle = key.rfind('/', last - 1);
      Sum& sum = by_rank[rank][{key.substr(first + 1, middle - first - 1), key.substr(middle + 1, last - middle - 1)}];
      if (key.ends_with("/sent_bytes")) sum.sent += value;
      if (key.ends_with("/received_bytes")) sum.received += value;
    }
  }
  if (!by_rank.empty()) report.ranks = by_rank.size();
  for (const auto& [rank, lines] : by_rank) {
    for (const auto& [key, sum] : lines) {
      TrafficLine& line = report.traffic[key];
      const double per_step = sum.sent / std::max(1.0, steps[rank]);
      line.mean += per_step / static_cast<double>(report.ranks);
      line.max = std::max(line.max, per_step);
      line.total += sum.sent;
      line.received += sum.received / std::max(1.0, steps[rank]) / static_cast<double>(report.ranks);
    }
  }
  for (const auto& [rank, classes] : memory) {
    for (const auto& [name, value] : classes) {
      if (rank == 0) report.memory[name].first = value;
      report.memory[name].max = std::max(report.memory[name].max, value);
    }
  }
}

// Of several ranks, by the run's configuration.
bool are_processes(const Report& report) {
  if (report.ranks < 2) return false;
  const lmx::Node config = lmx::parse_yaml_file(report.directory + "/config.yaml");
  const lmx::Node* comm = config.find("comm");
  const lmx::Node* name = comm ? comm->find("name") : nullptr;
  return name && name->text != "virtual";
}

Report read_report(const std::string& directory) {
  Report report;
  report.directory = directory;
  const std::vector<RunRecord> records = read_records(directory);
  read_provenance(report);
  read_own_metrics(report, records);
  read_ranks(report, records);
  report.on_a_wire = are_processes(report);
  report.times = comm_times(records);
  report.sub_batches = sub_batches(records);
  return report;
}

std::string text_at(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  if (!json.contains(at)) return "?";
  return json[at].is_string() ? json[at].get<std::string>() : json[at].dump();
}

void print_run(const Report& r) {
  Rows rows{{"run", r.directory},
            {"started", str(text_at(r.start, "/time"), r.starts > 1 ? str(" (start ", r.starts, ")") : "")},
            {"lmx", text_at(r.start, "/lmx/version")},
            {"host", str(text_at(r.start, "/host/name"), ", ", text_at(r.start, "/host/cpu"))},
            {"compute", str(text_at(r.start, "/compute/device"), " (", text_at(r.start, "/compute/isa"), "), ",
                            text_at(r.start, "/compute/precision"), ", ", r.ranks, r.ranks == 1 ? " rank" : " ranks")},
            {"data", text_at(r.start, "/data/source")},
            {"parameters", text_at(r.start, "/parameters")},
            {"step", std::to_string(r.step)}};
  std::cout << table(rows);
}

void print_metrics(const Report& r) {
  Rows rows{{"METRIC", "VALUE", "STEP"}};
  const auto add = [&](const char* name, const std::optional<RunRecord>& record, const char* key) {
    if (record && record->values.contains(key))
      rows.push_back({name, number(record->at(key), "%.6g"), std::to_string(record->step)});
  };
  add("valid ppl", r.valid, "ppl");
  add("best valid ppl", r.best, "ppl");
  add("valid nll_nat", r.valid, "nll_nat");
  add("valid nll_bit", r.valid, "nll_bit");
  add("train nll_nat", r.train, "nll_nat");
  add("lr", r.train, "lr");
  add("grad_norm", r.train, "grad_norm");
  add("step_s", r.train, "step_s");
  if (r.train) {
    for (const auto& [key, value] : r.train->values)
      if (key.ends_with("s_per_s")) add(key.c_str(), r.train, key.c_str());
  }
  if (rows.size() > 1) std::cout << "\n" << table(rows);
}

void print_traffic(const Report& r) {
  if (r.traffic.empty()) return;
  Rows rows{{"GROUP", "COLLECTIVE", "SENT A RANK AND STEP", "MOST OF A RANK", "RECEIVED", "ALL RANKS AND STEPS"}};
  TrafficLine all;
  for (const auto& [key, line] : r.traffic) {
    rows.push_back({key.first, key.second, bytes(line.mean), bytes(line.max), bytes(line.received), bytes(line.total)});
    all.mean += line.mean;
    all.received += line.received;
    all.total += line.total;
  }
  rows.push_back({"all", "", bytes(all.mean), "", bytes(all.received), bytes(all.total)});
  std::cout << "\n" << table(rows);
}

std::string seconds(double s) {
  return number(s * 1000, s < 0.0995 ? "%.2f ms" : "%.0f ms");
}

void print_times(const Report& r) {
  if (r.ranks < 2) return;
  if (!r.on_a_wire) {
    std::cout << "\nCommunication takes no time of its own here: virtual ranks share this machine's cores.\n";
    return;
  }
  const CommTimes& t = r.times;
  Rows rows{{"COMMUNICATION, A STEP OF RANK 0", "TIME"},
            {"gradients travel", seconds(t.busy)},
            {"hidden behind backward", seconds(t.hidden())},
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
    rows.push_back({"padding would be", number(100 * r.train->at("padding"), "%.1f %%")});
  if (r.train && r.train->values.contains("step_spread"))
    rows.push_back({"slowest rank above the mean", number(100 * r.train->at("step_spread"), "%.1f %%")});
  std::cout << "\n" << table(rows);
}

void write_charts(const Report& r, const std::string& directory) {
  if (r.sub_batches.empty())
    throw lmx::UserError(str("[report] ", r.directory,
                             " has no times of sub-batches to draw: it was not trained on "
                             "parallel text, or has no record yet"));
  std::filesystem::create_directories(directory);
  lmx::write_file_atomically(directory + "/sub_batch_times.svg", histogram_svg(r.sub_batches));
  lmx::write_file_atomically(directory + "/timeline.svg", timeline_svg(r.sub_batches));
  lmx::write_file_atomically(directory + "/timeline.json", timeline_trace(r.sub_batches));
}

void print_memory(const Report& r) {
  if (r.memory.empty()) return;
  Rows rows{{"MEMORY, PEAK", "RANK 0", "MOST OF A RANK"}};
  for (const auto& [name, line] : r.memory) rows.push_back({name, bytes(line.first), bytes(line.max)});
  std::cout << "\n" << table(rows);
}

void print_rows(const Report& r) {
  if (r.rows.empty()) return;
  Rows rows{{"TABLE", "ROWS AN UPDATE TOUCHES (U_g)"}};
  for (const auto& [name, value] : r.rows) rows.push_back({name, number(value, "%.1f")});
  std::cout << "\n" << table(rows);
}

// "embedding.weight/underflow" -> a column each.
void print_codec(const Report& r) {
  if (r.codec.empty()) return;
  Rows rows{{"CODEC", "LOSS", "MEAN"}};
  for (const auto& [key, value] : r.codec)
    rows.push_back({key.substr(0, key.rfind('/')), key.substr(key.rfind('/') + 1), number(value)});
  std::cout << "\n" << table(rows);
}

Json finite(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? Json("NaN") : Json(value > 0 ? "Infinity" : "-Infinity");
}

Json record_json(const std::optional<RunRecord>& record) {
  if (!record) return nullptr;
  Json json{{"step", record->step}};
  for (const auto& [key, value] : record->values) json[key] = finite(value);
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

void print_json(const Report& r) {
  Json json{{"format", 1}, {"run", r.directory}, {"step", r.step}, {"ranks", r.ranks}, {"start", r.start}};
  json["train"] = record_json(r.train);
  json["valid"] = record_json(r.valid);
  json["best"] = record_json(r.best);
  json["traffic"] = Json::array();
  for (const auto& [key, line] : r.traffic)
    json["traffic"].push_back({{"group", key.first},
                               {"collective", key.second},
                               {"sent_bytes_per_rank_and_step", line.mean},
                               {"sent_bytes_per_step_max", line.max},
                               {"received_bytes_per_rank_and_step", line.received},
                               {"sent_bytes_total", line.total}});
  json["comm_times"] = times_json(r);
  json["memory"] = Json::object();
  for (const auto& [name, line] : r.memory)
    json["memory"][name] = {{"rank_0_peak_bytes", line.first}, {"max_peak_bytes", line.max}};
  json["rows"] = r.rows;
  json["codec"] = Json::object();
  for (const auto& [key, value] : r.codec) json["codec"][key] = finite(value);
  std::cout << json.dump(1) << "\n";
}

void report(const Options& o) {
  const Report r = read_report(o.run);
  if (!o.charts.empty()) write_charts(r, o.charts);
  if (o.json) return print_json(r);
  print_run(r);
  print_metrics(r);
  print_rows(r);
  print_traffic(r);
  print_times(r);
  print_sub_batches(r);
  print_memory(r);
  print_codec(r);
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("report", "what a run came to: perplexity, bytes and times of collectives, memory by class");
  set_examples(*command, {{"lmx report runs/quickstart/2026-05-01_101500", "tables for people"},
                          {"lmx report runs/quickstart/2026-05-01_101500 --json", "the same for programs"}});
  const auto o = std::make_shared<Options>();
  command->add_option("RUN", o->run, "a run's folder")->required()->type_name("");
  command->add_flag("--json", o->json, "one JSON object");
  command
      ->add_option(
          "--charts", o->charts,
          "of parallel text: a folder for sub_batch_times.svg, timeline.svg (each rank in the last recorded step) "
          "and timeline.json, the same for chrome://tracing")
      ->type_name("DIR");
  command->callback([o] { report(*o); });
}

}  // namespace lmx_cli
