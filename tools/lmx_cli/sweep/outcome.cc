#include "outcome.h"

#include <signal.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "../jobs/line_file.h"
#include "../jobs/pool.h"
#include "../run_records.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<Outcome, const char*>, 8> kNames{{{Outcome::none, ""},
                                                                 {Outcome::done, "done"},
                                                                 {Outcome::diverged, "diverged"},
                                                                 {Outcome::out_of_memory, "out_of_memory"},
                                                                 {Outcome::failed, "failed"},
                                                                 {Outcome::preempted, "preempted"},
                                                                 {Outcome::stopped, "stopped"},
                                                                 {Outcome::paused, "paused"}}};

// "valid ppl 97.30" among the lines that the run printed, the last of them.
std::optional<double> printed(const Metric& metric, const std::string& log) {
  const std::string key = metric.text() + " ";
  std::istringstream lines(jobs::read_text(log));
  std::optional<double> value;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    char* end = nullptr;
    const double number = std::strtod(line.c_str() + key.size(), &end);
    if (end != line.c_str() + key.size()) value = number;
  }
  return value;
}

std::optional<double> recorded(const Metric& metric, const std::string& run) {
  std::error_code error;
  if (!std::filesystem::exists(run + "/metrics.jsonl", error)) return {};
  std::optional<double> value;
  for (const RunRecord& record : read_records(run))
    if (record.split == metric.split && record.values.contains(metric.key)) value = record.at(metric.key);
  return value;
}

}  // namespace

const char* name_of(Outcome outcome) {
  for (const auto& [known, name] : kNames)
    if (known == outcome) return name;
  return "";
}

Outcome outcome_named(const std::string& name) {
  for (const auto& [outcome, known] : kNames)
    if (name == known) return outcome;
  return Outcome::none;
}

Judgement judge(const Ending& ending, const std::string& run, const std::string& log) {
  const RunStatus status = read_status(run);
  if (ending.code == 0) return {status.state == "paused" ? Outcome::paused : Outcome::done, ""};
  if (ending.memory_killed && ending.code == 128 + SIGKILL)
    return {Outcome::out_of_memory, "killed for want of memory"};
  if (!ending.outside.empty()) return {Outcome::preempted, "ended from outside: " + ending.outside};
  if (ending.code == 128 + SIGKILL) return {Outcome::preempted, "killed from outside"};
  if (ending.code == 128 + SIGTERM || ending.code == 128 + SIGINT)
    return {Outcome::preempted, ending.code == 128 + SIGINT ? "SIGINT from outside" : "SIGTERM from outside"};
  if (ending.code > 128)
    return {Outcome::failed, lmx::str("ended by signal ", ending.code - 128, ", ", jobs::last_error(log))};
  const bool told = status.state == "failed";
  const std::string reason = told && !status.reason.empty() ? status.reason : jobs::last_error(log);
  if (told && status.cause == "diverged") return {Outcome::diverged, reason};
  const bool refused = reason.find("[memory]") != std::string::npos && reason.find("cannot allocate") != std::string::npos;
  if (status.cause == "out_of_memory" || refused || reason.find("out of memory") != std::string::npos)
    return {Outcome::out_of_memory, reason};
  return {Outcome::failed, reason};
}

RunStatus read_status(const std::string& run) {
  const Json json = Json::parse(jobs::read_text(run + "/status.json"), nullptr, false);
  if (!json.is_object()) return {};
  try {
    return {json.value("state", ""), json.value("cause", ""), json.value("reason", ""), json.value("step", int64_t{0})};
  } catch (const Json::exception&) {
    return {};
  }
}

std::optional<double> read_metric(const Metric& metric, const std::string& run, const std::string& log) {
  std::optional<double> value = recorded(metric, run);
  if (!value) value = printed(metric, log);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

int64_t memory_kills() {
  int64_t sum = 0;
  for (const char* path :
       {"/proc/vmstat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}) {
    std::ifstream file(path);
    std::string key;
    for (int64_t value = 0; file >> key >> value;)
      if (key == "oom_kill") sum += value;
  }
  return sum;
}

}  // namespace lmx_cli::sweeps
