#include "app/points/outcome.h"

#include <signal.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/jobs/pool.h"
#include "app/records/line_file.h"
#include "app/records/run_records.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

// Returns the value of the last line like "valid ppl 97.30" that the run printed.
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

Judgement judge(const Ending& ending, const std::string& run, const std::string& log) {
  const RunStatus status = read_status(run);
  if (ending.code == 0) return {status.state == "paused" ? Outcome::paused : Outcome::done, ""};
  if (ending.memory_killed && ending.code == 128 + SIGKILL)
    return {Outcome::out_of_memory, "killed for lack of memory"};
  if (!ending.outside.empty()) return {Outcome::preempted, "ended from outside: " + ending.outside};
  if (ending.code == 128 + SIGKILL) return {Outcome::preempted, "killed from outside"};
  if (ending.code == 128 + SIGTERM || ending.code == 128 + SIGINT)
    return {Outcome::preempted, ending.code == 128 + SIGINT ? "SIGINT from outside" : "SIGTERM from outside"};
  if (ending.code > 128)
    return {Outcome::failed, lmx::str("ended by signal ", ending.code - 128, ", ", jobs::last_error(log))};
  const bool told = status.state == "failed";
  const std::string reason = told && !status.reason.empty() ? status.reason : jobs::last_error(log);
  if (status.diverged()) return {Outcome::diverged, reason};
  const bool refused =
      reason.find("[memory]") != std::string::npos && reason.find("cannot allocate") != std::string::npos;
  if (status.cause == "out_of_memory" || refused || reason.find("out of memory") != std::string::npos)
    return {Outcome::out_of_memory, reason};
  return {Outcome::failed, reason};
}

std::optional<double> read_metric(const Metric& metric, const std::string& run, const std::string& log) {
  std::optional<double> value = recorded(metric, run);
  if (!value) value = printed(metric, log);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace lmx_cli::sweeps
