// A file store of MLflow: a file for each metric, parameter and tag. Its meta.yaml files are JSON, which is YAML too.
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/report/trackers.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx_cli::reports {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using lmx::str;

void write(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);  // write_file() reports a failure
  lmx::write_file(path.string(), text);
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
  const std::string id = std::to_string(std::stoull(lmx::sha256_of_text(run.group).substr(0, 14), nullptr, 16));
  write_experiment(store, id, run.group, run.began);
  return id;
}

}  // namespace

std::string write_mlflow(const Report& report, const std::string& folder) {
  const TrackedRun run = tracked_run(report);
  const std::string experiment = experiment_of(folder, run), id = run.key.substr(0, 32);
  const fs::path path = fs::path(folder) / experiment / id;
  std::error_code error;
  for (const char* part : {"artifacts", "metrics", "params", "tags"})  // MLflow ignores a run without these folders
    fs::create_directories(path / part, error);
  std::map<std::string, std::string> metrics;
  for (const auto& [step, moment] : run.steps)
    for (const auto& [name, value] : moment.values)
      metrics[metric_name(name)] += str(milliseconds(moment.time), " ", lmx::number_text(value), " ", step, "\n");
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

}  // namespace lmx_cli::reports
