// Names of outcomes in files, and counters of the kernel.
#include <array>
#include <sstream>
#include <utility>

#include "app/points/outcome.h"
#include "app/records/line_file.h"

namespace lmx_cli::sweeps {
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
