#include "app/report/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/runs/run_directory.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app::report {
namespace {

// Returns the whole file.
Json read_provenance(Report& report) {
  const std::string path = report.directory + "/provenance.json";
  const Json all = Json::parse(std::ifstream(path), nullptr, false);
  if (!all.is_object() || !all.contains("starts") || !all["starts"].is_array() || all["starts"].empty())
    throw UserError(str("[report] ", path, " is missing or damaged"));
  report.starts = all["starts"].size();
  report.start = all["starts"].back().dump();
  if (const Json& first = all["starts"].front(); first.is_object()) report.began = first.value("time", "");
  return all;
}

// Collects the leaves of a tree; a list is one leaf.
void flatten(const Node& node, const std::string& path, std::vector<std::pair<std::string, std::string>>& leaves) {
  if (node.kind != Node::Kind::map) {
    leaves.emplace_back(path, node.kind == Node::Kind::scalar ? node.text : to_json(node));
    return;
  }
  for (const auto& [key, value] : node.entries) flatten(value, path.empty() ? key : path + "." + key, leaves);
}

// Adds the values before each `--change` to those of config.yaml, which has the last ones. A resume from an earlier
// checkpoint discards the changes after it.
void add_changes(Report& report, const Json& provenance) {
  std::map<std::string, std::vector<Json>> changes;
  for (const Json& start : provenance["starts"]) {
    if (!start.contains("changes")) continue;
    for (const Json& change : start["changes"]) {
      for (auto& [key, earlier] : changes)
        std::erase_if(earlier, [&](const Json& c) { return c.at("step") > change.at("step"); });
      changes[change.at("key")].push_back(change);
    }
  }
  for (auto& [key, value] : report.config) {
    if (changes[key].empty()) continue;
    value = changes[key].front().at("before");
    for (const Json& change : changes[key])
      value += str("; ", change.at("now").get<std::string>(), " from step ", change.at("step").get<int64_t>(), " on");
  }
}

LastWindow last_window(const std::vector<RunRecord>& records) {
  const std::vector<double> steps = window_steps(records);
  if (steps.size() < 3) return {};
  std::vector<double> before(steps.begin(), steps.end() - 1);
  std::nth_element(before.begin(), before.begin() + static_cast<int64_t>(before.size() / 2), before.end());
  const auto last =
      std::find_if(records.rbegin(), records.rend(), [](const RunRecord& r) { return r.split == "train"; });
  return {last->step, static_cast<int64_t>(steps.back()), static_cast<int64_t>(before[before.size() / 2])};
}

void read_own_metrics(Report& report, const std::vector<RunRecord>& records) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const RunRecord& r : records) {
    report.step = std::max(report.step, r.step);
    if (r.split == "train") report.train = r;
    if (r.values.contains("BLEU")) report.translation = r;
    if (r.split == "valid" && r.values.contains("ppl")) {
      report.valid = r;
      if (!report.best || r.at("ppl", INFINITY) < report.best->at("ppl", INFINITY)) report.best = r;
    }
    for (const auto& [key, value] : r.values) {
      if (!key.starts_with("rows/")) continue;
      sums[key].first += value;
      ++sums[key].second;
    }
  }
  for (const auto& [key, sum] : sums) report.rows[key.substr(key.find('/') + 1)] = sum.first / sum.second;
}

// Each train record contains the codec statistics of all ranks since the previous train record. "<rule>/staleness/<n>"
// is the number of updates since then that were n updates behind.
void read_strategies(Report& report, const std::vector<RunRecord>& records) {
  constexpr std::string_view kKey = "/staleness/";
  for (const RunRecord& r : records) {
    if (r.split != "train") continue;
    for (const auto& [param, h] : health_in(r.values)) {
      CodecHealth& sum = report.codec[param];
      sum.add(h);
      sum.residual = h.residual;
    }
    for (const auto& [key, value] : r.values) {
      if (is_strategy_key(key)) report.strategy[key] = value;
      const size_t at = key.find(kKey);
      if (at == std::string::npos) continue;
      const std::optional<int64_t> behind = parse_int(key.substr(at + kKey.size()));
      if (behind) report.staleness[key.substr(0, at)][*behind] += value;
    }
  }
}

// Reads the peaks at the end of the run, which include the last validation and checkpoint. A run that still trains, or
// was killed, has none.
void read_memory_at_end(Report& report) {
  const std::string text = read_text(report.directory + "/memory.json");
  const Json memory = Json::parse(text, nullptr, false);
  if (!memory.is_object() || !memory.contains("peak_bytes")) return;
  for (const Json& rank : memory["peak_bytes"]) {
    if (!rank.is_object()) continue;
    for (const auto& [name, bytes] : rank.items())
      if (name != "rank" && bytes.is_number()) report.rank_memory[rank.value("rank", int64_t{0})][name] = bytes;
  }
}

// Reads the ledger: each rank's records contain its bytes since its previous record.
void read_ranks(Report& report, const std::vector<RunRecord>& records) {
  struct Sum {
    double sent = 0, received = 0;
    std::optional<double> between_nodes;
  };
  std::map<int64_t, std::map<std::pair<std::string, std::string>, Sum>> by_rank;
  std::map<int64_t, double> steps;
  for (const RunRecord& r : records) {
    if (r.split != "rank") continue;
    const auto rank = static_cast<int64_t>(r.at("rank"));
    steps[rank] += r.at("steps");
    for (const auto& [key, value] : r.values) {
      const size_t first = key.find('/'), last = key.rfind('/');
      if (key.starts_with("memory/")) report.rank_memory[rank][key.substr(7, key.rfind("_peak_bytes") - 7)] = value;
      if (!key.starts_with("comm/") || first == last) continue;
      const size_t middle = key.rfind('/', last - 1);
      Sum& sum = by_rank[rank][{key.substr(first + 1, middle - first - 1), key.substr(middle + 1, last - middle - 1)}];
      if (key.ends_with("/sent_bytes")) sum.sent += value;
      if (key.ends_with("/received_bytes")) sum.received += value;
      if (key.ends_with("/sent_between_nodes_bytes")) sum.between_nodes = sum.between_nodes.value_or(0) + value;
    }
  }
  if (!by_rank.empty()) report.ranks = by_rank.size();
  for (const auto& [rank, lines] : by_rank) {
    for (const auto& [key, sum] : lines) {
      if (sum.sent == 0 && sum.received == 0) continue;  // a group of one rank
      TrafficLine& line = report.traffic[key];
      const double per_step = sum.sent / std::max(1.0, steps[rank]);
      if (sum.between_nodes)
        line.between_nodes = line.between_nodes.value_or(0) +
                             *sum.between_nodes / std::max(1.0, steps[rank]) / static_cast<double>(report.ranks);
      line.mean += per_step / static_cast<double>(report.ranks);
      line.max = std::max(line.max, per_step);
      line.total += sum.sent;
      line.received += sum.received / std::max(1.0, steps[rank]) / static_cast<double>(report.ranks);
    }
  }
  read_memory_at_end(report);
  for (const auto& [rank, classes] : report.rank_memory) {
    for (const auto& [name, value] : classes) {
      if (rank == 0) report.memory[name].first = value;
      report.memory[name].max = std::max(report.memory[name].max, value);
    }
  }
}

// Returns whether the run has several ranks that are processes, according to its configuration.
bool are_processes(const Report& report) {
  if (report.ranks < 2) return false;
  const auto name = std::find_if(report.config.begin(), report.config.end(),
                                 [](const auto& leaf) { return leaf.first == "comm.name"; });
  return name != report.config.end() && name->second != "virtual";
}

// Json::exception: a value has another type than lmx writes.
Report read_files(const std::string& directory) {
  Report report;
  report.directory = directory;
  report.records = read_records(directory);
  const std::vector<RunRecord>& records = report.records;
  const Json provenance = read_provenance(report);
  report.status = read_status(directory);
  if (report.status.state == "running" && has_lost_process(directory)) {
    report.status.state = "killed";
    report.status.reason = "its process has ended without a last record; --resume continues the run";
    report.status.time = "";
  }
  flatten(read_run_config(directory), "", report.config);
  add_changes(report, provenance);
  report.samples = read_text(directory + "/samples.txt");
  read_own_metrics(report, records);
  read_strategies(report, records);
  read_ranks(report, records);
  report.last_window = last_window(records);
  report.on_a_wire = are_processes(report);
  report.times = comm_times(records);
  report.sub_batches = sub_batches(records);
  return report;
}

}  // namespace

Report read_report(const std::string& directory) {
  try {
    return read_files(directory);
  } catch (const Json::exception& e) {
    throw UserError(str("[report] a file of ", directory, " is damaged: ", e.what()));
  }
}

bool is_strategy_key(const std::string& key) {
  const size_t slash = key.find('/');
  if (slash == std::string::npos || key.find("/staleness/") != std::string::npos) return false;
  const std::string first = key.substr(0, slash);
  return first != "rows" && first != "codec" && first != "overflow";
}

std::vector<double> window_steps(const std::vector<RunRecord>& records) {
  std::vector<double> steps;
  int64_t before = 0, at = -1;
  for (const RunRecord& r : records) {
    if (r.split == "train") {
      steps.push_back(static_cast<double>(r.step - before));
      at = before = r.step;
    } else if (r.split == "rank" && r.step == at && r.at("rank", -1) == 0 && r.at("steps") > 0) {
      steps.back() = r.at("steps");
    }
  }
  return steps;
}

std::string state_text(const Report& report) {
  if (report.status.diverged()) return "diverged";
  return report.status.state.empty() ? "unknown" : report.status.state;
}

double sent_per_step(const Report& report) {
  double sent = 0;
  for (const auto& [key, line] : report.traffic) sent += line.mean;
  return sent;
}

std::string start_text(const Report& report, const char* pointer) {
  const Json start = Json::parse(report.start);
  const Json::json_pointer at(pointer);
  if (!start.contains(at)) return "?";
  return start[at].is_string() ? start[at].get<std::string>() : start[at].dump();
}

namespace {

namespace fs = std::filesystem;

void add_runs(const fs::path& directory, std::vector<std::string>& runs) {
  if (holds_run(directory.string())) {
    runs.push_back(directory.string());
    return;
  }
  std::error_code error;
  for (fs::directory_iterator entry(directory, fs::directory_options::skip_permission_denied, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    const bool hidden = entry->path().filename().string().starts_with(".");
    if (!hidden && !entry->is_symlink(unreadable) && entry->is_directory(unreadable)) add_runs(entry->path(), runs);
  }
}

}  // namespace

bool holds_run(const std::string& directory) {
  std::error_code error;
  return fs::is_regular_file(fs::path(directory) / "metrics.jsonl", error);
}

std::vector<std::string> runs_below(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) throw UserError(str("[records] there is no run directory ", directory));
  fs::path top = fs::path(directory).lexically_normal();
  if (!top.has_filename()) top = top.parent_path();
  if (holds_run(directory)) return {directory};
  std::vector<std::string> runs;
  add_runs(top, runs);
  std::sort(runs.begin(), runs.end());
  return runs;
}

namespace {

// UserError: no run below the folder can be read.
void add_runs_of_folder(const std::string& directory, const std::string& command, std::vector<Report>& reports) {
  const std::vector<std::string> found = runs_below(directory);
  const size_t before = reports.size();
  for (const std::string& run : found) {
    try {
      reports.push_back(read_report(run));
    } catch (const UserError& e) {
      log_warn(str("run ", run, " is left out: ", e.what()));
    }
  }
  if (reports.size() > before) return;
  throw UserError(str("[", command, "] ", directory,
                      found.empty() ? " holds no run, and no folder below it does; a run is a folder with "
                                      "metrics.jsonl, as `lmx run` writes it below runs/"
                                    : " holds no run that can be read"));
}

}  // namespace

std::vector<Report> read_reports(const std::vector<std::string>& directories, const std::string& command) {
  std::vector<Report> reports;
  for (const std::string& directory : directories) {
    std::error_code error;
    if (holds_run(directory) || !fs::is_directory(directory, error))
      reports.push_back(read_report(directory));
    else
      add_runs_of_folder(directory, command, reports);
  }
  return reports;
}

}  // namespace lmx::app::report
