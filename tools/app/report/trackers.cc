#include "app/report/trackers.h"

#include <algorithm>
#include <boost/crc.hpp>
#include <cctype>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/report/page.h"
#include "app/runs/run_directory.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/protobuf.h"
#include "base/text.h"
#include "lmx/api.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::app::report {
namespace {

namespace fs = std::filesystem;

// The part of a run that both programs store. The records of ranks are left out, as in TensorBoard's files.
struct TrackedRun {
  std::string key;  // 64 hexadecimal digits of the run's folder and start: a second export replaces the first one
  std::string name, group;      // the folder, and the folder that contains the run, or its sweep or experiment
  double began = 0, ended = 0;  // seconds since 1970; ended 0: unknown
  struct Moment {
    double time = 0;  // seconds since 1970: the start of the run, plus the seconds of training until this step
    std::map<std::string, double> values;  // by split and key: "train/nll_nat"
  };
  std::map<int64_t, Moment> steps;
};

// The points of a sweep and the cells of an experiment belong to the folder that has them all.
std::string group_of(const fs::path& run) {
  fs::path parent = run.parent_path();
  if (parent.filename() == "points" || parent.filename() == "cells") parent = parent.parent_path();
  return parent.filename().string();
}

TrackedRun tracked_run(const Report& run) {
  TrackedRun out;
  fs::path path = fs::absolute(run.directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  out.key = sha256_of_text(str(path.string(), " ", run.began));
  out.name = path.filename().string();
  out.group = group_of(path);
  out.began = seconds_of(run.began);
  if (run.status.state != "running") out.ended = seconds_of(run.status.time);
  const Clock clock = clock_of(run.records);
  size_t window = 0;  // of train records
  for (const RunRecord& record : run.records) {
    if (record.split == "rank" || record.split == "change") continue;
    window += record.split == "train";
    TrackedRun::Moment& moment = out.steps[record.step];
    moment.time = out.began + (window > 0 ? 3600 * clock.hours[window - 1] : 0);
    for (const auto& [key, value] : record.values) moment.values[record.split + "/" + key] = value;
  }
  return out;
}

// A file store of MLflow: a file for each metric, parameter and tag. Its meta.yaml files are JSON, which is YAML too.

void write(const fs::path& path, const std::string& text) {
  make_folder(path.parent_path().string(), "[report] ");
  write_file(path.string(), text);
}

void write_json(const fs::path& path, const Json& json) {
  write(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

int64_t milliseconds(double seconds) {
  return std::llround(1000 * seconds);
}

// The characters that MLflow allows in names. A / separates folders, so a name with one cannot begin another name: only
// the split has one.
std::string metric_name(const std::string& name) {
  std::string out = name;
  const size_t split = name.find('/');
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '/' && i != split) out[i] = '.';
    if (!std::isalnum(static_cast<unsigned char>(out[i])) && !std::strchr("_-. /", out[i])) out[i] = '_';
  }
  return out;
}

// RunStatus of mlflow/protos/service.proto.
int status_number(const std::string& state) {
  return state == "running" ? 1 : state == "done" ? 3 : state == "failed" ? 4 : 5;  // 5: KILLED
}

// The name in the meta.yaml of an experiment, which is a line of YAML (MLflow) or of JSON (lmx), with or without
// quotes.
std::string experiment_name(const fs::path& meta) {
  std::ifstream file(meta);
  for (std::string line; std::getline(file, line);) {
    for (const std::string begin : {"name: ", " \"name\": "}) {
      if (!line.starts_with(begin)) continue;
      const std::string quotes = "'\", ";
      const size_t first = line.find_first_not_of(quotes, begin.size());
      return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(quotes) + 1 - first);
    }
  }
  return "";
}

void write_experiment(const fs::path& store, const std::string& id, const std::string& name, double created) {
  write_json(store / id / "meta.yaml",
             {{"experiment_id", id},
              {"name", name},
              {"artifact_location", str("file://", fs::absolute(store / id).lexically_normal().string())},
              {"lifecycle_stage", "active"},
              {"creation_time", milliseconds(created)},
              {"last_update_time", milliseconds(created)}});
}

// Returns the id of the experiment of this name. Creates it if there is none.
std::string experiment_of(const fs::path& store, const TrackedRun& run) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(store, error))
    if (experiment_name(entry.path() / "meta.yaml") == run.group) return entry.path().filename().string();
  if (!fs::exists(store, error)) write_experiment(store, "0", "Default", run.began);  // MLflow expects it in each store
  const std::string id = std::to_string(std::stoull(sha256_of_text(run.group).substr(0, 14), nullptr, 16));
  write_experiment(store, id, run.group, run.began);
  return id;
}

}  // namespace

double seconds_of(const std::string& time) {
  std::tm parts{};
  const char* end = strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S%z", &parts);
  if (!end || *end) return 0;
  const int64_t east = parts.tm_gmtoff;  // timegm() sets it to 0
  return static_cast<double>(timegm(&parts) - east);
}

std::string write_mlflow(const Report& report, const std::string& folder) {
  const TrackedRun run = tracked_run(report);
  const std::string experiment = experiment_of(folder, run), id = run.key.substr(0, 32);
  const fs::path path = fs::path(folder) / experiment / id;
  for (const char* part : {"artifacts", "metrics", "params", "tags"})  // MLflow ignores a run without these folders
    make_folder((path / part).string(), "[report] ");
  std::map<std::string, std::string> metrics;
  for (const auto& [step, moment] : run.steps)
    for (const auto& [name, value] : moment.values)
      metrics[metric_name(name)] += str(milliseconds(moment.time), " ", number_text(value), " ", step, "\n");
  for (const auto& [name, lines] : metrics) write(path / "metrics" / name, lines);
  for (const auto& [key, value] : report.config) write(path / "params" / metric_name(key), value);
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"mlflow.runName", run.name},
                                          {"mlflow.source.name", report.directory},
                                          {"mlflow.source.type", "LOCAL"},
                                          {"lmx.state", state_text(report)},
                                          {"lmx.version", start_text(report, "/lmx/version")},
                                          {"lmx.host", start_text(report, "/host/name")}})
    write(path / "tags" / key, value);
  Json meta{{"run_id", id},
            {"run_uuid", id},
            {"run_name", run.name},
            {"experiment_id", experiment},
            {"artifact_uri", str("file://", fs::absolute(path / "artifacts").lexically_normal().string())},
            {"status", status_number(report.status.state)},
            {"start_time", milliseconds(run.began)},
            {"end_time", nullptr},
            {"lifecycle_stage", "active"},
            {"user_id", ""},
            {"source_type", 4},  // LOCAL
            {"source_name", report.directory},
            {"source_version", ""},
            {"entry_point_name", ""},
            {"tags", Json::array()}};
  if (run.ended > 0) meta["end_time"] = milliseconds(run.ended);
  write_json(path / "meta.yaml", meta);
  return path.string();
}

// An offline run of Weights & Biases, which `wandb sync` sends. The messages are those of wandb_internal.proto, whose
// field numbers are stated beside the names.

namespace {

using protobuf::bytes_field;
using protobuf::number_field;

constexpr size_t kBlock = 32768, kFrame = 7;  // bytes of a block, and of checksum, length and type before a fragment

// Values that are not finite are the words NaN, Infinity and -Infinity, as W&B writes them.
// HistoryItem and SummaryItem: nested_key = 2, value_json = 16. ConfigItem: key = 1, value_json = 16.
std::string item(int key_field, const std::string& key, const std::string& json) {
  return bytes_field(1, bytes_field(key_field, key) + bytes_field(16, json));
}

// Timestamp: seconds = 1.
std::string timestamp(double seconds) {
  return number_field(1, std::llround(seconds));
}

// RunRecord: run_id = 1, project = 3, config = 4, display_name = 8, host = 13, start_time = 17.
std::string run_message(const Report& report, const TrackedRun& run, const std::string& id) {
  std::string config;
  for (const auto& [key, value] : read_run_config(report.directory).entries) config += item(1, key, to_json(value));
  config += item(1, "lmx", report.start);
  return bytes_field(1, id) + bytes_field(3, run.group) + bytes_field(4, config) + bytes_field(8, run.name) +
         bytes_field(13, start_text(report, "/host/name")) + bytes_field(17, timestamp(run.began));
}

// The items of one step, and those that W&B adds itself.
std::string items_of(int64_t step, const TrackedRun::Moment& moment, double began) {
  std::string items = item(2, "_step", std::to_string(step)) + item(2, "_timestamp", number_text(moment.time)) +
                      item(2, "_runtime", number_text(moment.time - began));
  for (const auto& [name, value] : moment.values) items += item(2, name, number_text(value));
  return items;
}

// Record: num = 1, history = 2, summary = 3, run = 17, exit = 18, header = 21.
std::vector<std::string> records_of(const Report& report, const TrackedRun& run, const std::string& id) {
  std::vector<std::string> all;
  const auto add = [&](int field, const std::string& message) {
    all.push_back(number_field(1, static_cast<int64_t>(all.size() + 1)) + bytes_field(field, message));
  };
  add(21, bytes_field(1, bytes_field(1, str("lmx ", kVersion))));  // version_info = 1: producer = 1
  add(17, run_message(report, run, id));
  TrackedRun::Moment last;
  for (const auto& [step, moment] : run.steps) {
    add(2, items_of(step, moment, run.began) + bytes_field(2, number_field(1, step)));  // step = 2: num = 1
    last.time = moment.time;
    for (const auto& [name, value] : moment.values) last.values[name] = value;
  }
  if (run.steps.empty()) return all;
  add(3, items_of(run.steps.rbegin()->first, last, run.began));
  // exit_code = 1, runtime = 2. A run that trains has none, and its file continues.
  const std::string& state = report.status.state;
  if (state != "running" && !state.empty())
    add(18, number_field(1, state == "done" || state == "paused" ? 0 : 1) +
                number_field(2, std::llround(last.time - run.began)));
  return all;
}

}  // namespace

std::string leveldb_log(std::string_view header, const std::vector<std::string>& records) {
  std::string out(header);
  for (std::string_view rest : records) {
    for (bool first = true, whole = false; !whole; first = false) {
      const size_t room = kBlock - out.size() % kBlock;
      if (room < kFrame) out.append(room, '\0');
      const size_t size = std::min(rest.size(), (room < kFrame ? kBlock : room) - kFrame);
      whole = size == rest.size();
      const char type = first && whole ? 1 : first ? 2 : whole ? 4 : 3;  // full, first, last, middle
      boost::crc_32_type crc;
      crc.process_byte(static_cast<unsigned char>(type));
      crc.process_bytes(rest.data(), size);
      out +=
          protobuf::fixed(static_cast<uint32_t>(crc.checksum())) + protobuf::fixed(static_cast<uint16_t>(size)) + type;
      out += rest.substr(0, size);
      rest.remove_prefix(size);
    }
  }
  return out;
}

std::string write_wandb(const Report& report, const std::string& folder) {
  const TrackedRun run = tracked_run(report);
  const std::string id = run.key.substr(0, 8);
  const auto began = static_cast<std::time_t>(run.began);
  std::tm utc{};
  gmtime_r(&began, &utc);
  char time[16];
  std::strftime(time, sizeof time, "%Y%m%d_%H%M%S", &utc);
  const fs::path path = fs::path(folder) / str("offline-run-", time, "-", id);
  make_folder((path / "files").string(), "[report] ");
  // ":W&B", a magic number, version 0.
  write_file((path / str("run-", id, ".wandb")).string(),
             leveldb_log(std::string(":W&B\xE1\xBE\0", 7), records_of(report, run, id)));
  return path.string();
}

}  // namespace lmx::app::report
