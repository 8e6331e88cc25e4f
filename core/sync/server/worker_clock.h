// The times at which workers of a parameter server pull and push: simulated durations, or the order of an earlier run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmx/param_server.h"
#include "lmx/random.h"

namespace lmx {

// State that the workers of a process share; only the worker whose turn it is may access it.
struct WorkerBoard {
  explicit WorkerBoard(int ranks) : done(static_cast<size_t>(ranks)) {}
  std::vector<int64_t> done;    // by rank: number of finished steps
  bool stop = false;            // all workers meet as soon as possible
  std::vector<int32_t> events;  // if a schedule is recorded: its events in order (2 rank, +1 for a push)
};

// The contents of the files that a rule's clock names. UserError naming file and line: missing, malformed, for another
// number of workers.
struct ClockFiles {
  ClockFiles(const ServerConfig& config, int ranks);
  std::vector<std::vector<double>> durations;  // of delay.file: by line, then column
  std::vector<int32_t> events;                 // of replay
};
// Writes the order of pulls and pushes to a file: a line "lmx schedule 1: 4 workers", then for each event a line
// "pull 0" or "push 0". RunError: the file cannot be written.
void write_schedule(const std::string& path, const std::vector<int32_t>& events, int ranks);

// One worker's times. In a replay they are positions in the schedule.
class WorkerClock {
 public:
  WorkerClock(const ServerConfig& config, std::shared_ptr<const ClockFiles> files, RandomKey key, int rank, int ranks);
  // The time of the event of step `step` (0-based). `now`: the time of this worker's last event.
  double pull(int64_t step, double now) const;
  double push(int64_t step, double now) const;
  // UserError: the schedule has fewer steps.
  void require(int64_t steps) const;
  const std::vector<int32_t>& replayed() const { return files_->events; }  // the order to repeat, or empty

 private:
  double duration(int64_t step) const;
  DelayConfig delay_;
  std::string replay_;
  std::shared_ptr<const ClockFiles> files_;
  RandomKey key_;
  int rank_, ranks_;
  double speed_ = 1;
  std::vector<double> turns_;  // positions of this worker's events in a replayed schedule
};

}  // namespace lmx
