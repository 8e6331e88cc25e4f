// How a point ended, and the result of its run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/points/plan.h"
#include "app/records/run_status.h"

namespace lmx_cli::sweeps {

// done, diverged, out_of_memory, failed; preempted: ended from outside, and can continue; stopped: by halving; paused:
// at a rung of halving.
enum class Outcome { none, done, diverged, out_of_memory, failed, preempted, stopped, paused };
const char* name_of(Outcome outcome);
Outcome outcome_named(const std::string& name);  // none for an unknown one

// How a process ended, in addition to its exit code.
struct Ending {
  int code = 0;                // exit code, or 128 + signal
  bool memory_killed = false;  // meanwhile the kernel or the scheduler ended a process because of lack of memory
  std::string outside = {};    // why someone else ended it ("PREEMPTED", "NODE_FAIL"), if known
};

struct Judgement {
  Outcome outcome = Outcome::none;
  std::string reason;  // the problem, in one line
};

// Determines the outcome from the exit code, the run's status.json and the last error in its log.
Judgement judge(const Ending& ending, const std::string& run, const std::string& log);

using jobs::read_status;
using jobs::RunStatus;

// Returns the current metric of a run; nothing if it has none yet, or none that is finite.
std::optional<double> read_metric(const Metric& metric, const std::string& run, const std::string& log);

// Returns how often the kernel has killed a process of this process's cgroup because of lack of memory. If the cgroup
// does not count this, returns the number for the whole machine.
int64_t memory_kills();
// Returns the files that may contain this number, the nearest cgroup first. `cgroups`: the contents of
// /proc/self/cgroup.
std::vector<std::string> memory_counters(const std::string& cgroups);
// Reads the number from the first file that has a line `oom_kill N`; 0 if none has.
int64_t kills_counted(const std::vector<std::string>& files);

}  // namespace lmx_cli::sweeps
