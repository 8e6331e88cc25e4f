// How a point ended, and what its run came to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/records/run_status.h"
#include "app/sweep/plan.h"

namespace lmx_cli::sweeps {

// done, diverged, out_of_memory, failed; preempted: ended from outside, and can go on; stopped: by halving; paused: at
// a rung of it.
enum class Outcome { none, done, diverged, out_of_memory, failed, preempted, stopped, paused };
const char* name_of(Outcome outcome);
Outcome outcome_named(const std::string& name);  // none for an unknown one

// How a process ended, beside its exit code.
struct Ending {
  int code = 0;                // exit code, or 128 + signal
  bool memory_killed = false;  // the kernel, or the scheduler, ended somebody for want of memory meanwhile
  std::string outside = {};    // why somebody else ended it ("PREEMPTED", "NODE_FAIL"), where that is known
};

struct Judgement {
  Outcome outcome = Outcome::none;
  std::string reason;  // of what did not go well, one line
};

// From the exit code, the run's status.json and the last error in its log.
Judgement judge(const Ending& ending, const std::string& run, const std::string& log);

using jobs::read_status;
using jobs::RunStatus;

// The metric of a run as it stands; nothing where it has none yet, or no finite one.
std::optional<double> read_metric(const Metric& metric, const std::string& run, const std::string& log);

// How often the kernel has killed a process of this one's cgroup for want of memory; of the whole machine where the
// cgroup does not tell.
int64_t memory_kills();
// The files that may count that, the nearest first. `cgroups`: what /proc/self/cgroup holds.
std::vector<std::string> memory_counters(const std::string& cgroups);
// By the first of them that has a line `oom_kill N`; 0 where none has.
int64_t kills_counted(const std::vector<std::string>& files);

}  // namespace lmx_cli::sweeps
