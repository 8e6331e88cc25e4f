// The state of a sweep from the lines of its journal. The journal is untrusted input: every value is checked before
// use.
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "app/points/journal.h"
#include "app/records/line_file.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using Json = nlohmann::ordered_json;
using lmx::str;
using lmx::UserError;

size_t point_of(const Plan& plan, const std::string& id) {
  const size_t point = plan.index_of(id);
  if (point == plan.points.size()) throw UserError(str("there is no point ", id));
  return point;
}

// Converting 1e300 with nlohmann's get<int64_t>() is undefined behaviour.
int64_t integer_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_integer()) throw UserError(str("'", key, "' is no whole number"));
  return value.get<int64_t>();
}

std::optional<double> value_of(const Json& json) {
  const Json& value = json.at("value");
  return value.is_number() ? std::optional<double>(value.get<double>()) : std::nullopt;
}

void apply_end(const Plan& plan, std::vector<State>& states, const Json& json) {
  State& s = states[point_of(plan, json.at("point"))];
  const Outcome outcome = outcome_named(json.at("outcome"));
  if (outcome == Outcome::none) throw UserError(str("unknown outcome ", json.at("outcome").dump()));
  s.outcome = outcome;
  s.step = integer_at(json, "step");
  s.value = value_of(json);
  s.seconds += json.at("seconds").get<double>();
  s.reason = json.value("reason", "");
  if (s.outcome != Outcome::paused) ++s.attempts;
}

Batch read_batch(const Json& json) {
  Batch batch{integer_at(json, "batch"), json.at("name"), "", {}};
  for (const Json& task : json.at("tasks")) batch.tasks.push_back({task.at("point"), integer_at(task, "until")});
  return batch;
}

}  // namespace

void Standing::apply(const Plan& plan, const std::string& line, const std::string& where) {
  try {
    const Json json = Json::parse(line);
    const auto event = json.at("event").get<std::string>();
    if (event == "start") {
      State& s = states[point_of(plan, json.at("point"))];
      s.begun = true;
      s.outcome = Outcome::none;
    } else if (event == "end") {
      apply_end(plan, states, json);
    } else if (event == "value") {
      states[point_of(plan, json.at("point"))].value = value_of(json);
    } else if (event == "rung") {
      ++rungs;
      for (const Json& id : json.at("stopped")) states[point_of(plan, id)].outcome = Outcome::stopped;
    } else if (event == "submitting") {
      batches.push_back(read_batch(json));
    } else if (event == "submitted") {
      for (Batch& batch : batches)
        if (batch.number == json.at("batch")) batch.job = json.at("job");
    } else {
      throw UserError(str("unknown event ", event));
    }
  } catch (const Json::exception& e) {
    throw UserError(str("[sweep] ", where, " is damaged: ", e.what()));
  } catch (const UserError& e) {
    throw UserError(str("[sweep] ", where, " is damaged: ", e.what()));
  }
}

Standing read_standing(const Plan& plan, const std::string& directory) {
  const std::string path = directory + "/journal.jsonl";
  Standing standing{std::vector<State>(plan.points.size()), {}, 0};
  const std::string text = jobs::read_text(path);
  size_t begin = 0, number = 1;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    standing.apply(plan, text.substr(begin, end - begin), str(path, ":", number++));
  return standing;
}

// Names of outcomes in files, and counters of the kernel.

namespace {

constexpr std::array<std::pair<Outcome, const char*>, 8> kNames{{{Outcome::none, ""},
                                                                 {Outcome::done, "done"},
                                                                 {Outcome::diverged, "diverged"},
                                                                 {Outcome::out_of_memory, "out_of_memory"},
                                                                 {Outcome::failed, "failed"},
                                                                 {Outcome::preempted, "preempted"},
                                                                 {Outcome::stopped, "stopped"},
                                                                 {Outcome::paused, "paused"}}};

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

int64_t memory_kills() {
  static const std::vector<std::string> files = memory_counters(jobs::read_text("/proc/self/cgroup"));
  return kills_counted(files);
}

// A line is `hierarchy:controllers:path`: "0::/user.slice" in version 2, "4:memory:/user" in version 1. In a container
// the path may be the host's, while the mounted tree starts at the container's own group.
std::vector<std::string> memory_counters(const std::string& cgroups) {
  const std::string v1 = "/sys/fs/cgroup/memory", v2 = "/sys/fs/cgroup";
  std::vector<std::string> files;
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const std::string below = path == "/" ? "" : path;
    if (controllers.empty()) files.push_back(v2 + below + "/memory.events");
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      files.insert(files.begin(), v1 + below + "/memory.oom_control");
  }
  files.insert(files.end(), {v2 + "/memory.events", v1 + "/memory.oom_control", "/proc/vmstat"});
  return files;
}

int64_t kills_counted(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    std::istringstream words(jobs::read_text(path));
    std::string key;
    for (int64_t value = 0; words >> key >> value;)
      if (key == "oom_kill") return value;
  }
  return 0;
}

}  // namespace lmx_cli::sweeps
