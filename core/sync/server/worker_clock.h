// When workers of a parameter server pull and push: simulated durations, or the order of an earlier run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmx/param_server.h"
#include "lmx/random.h"

namespace lmx::train {

// What the workers of a process know of each other; touched by the one whose turn it is.
struct WorkerBoard {
  explicit WorkerBoard(int ranks) : done(static_cast<size_t>(ranks)) {}
  std::vector<int64_t> done;    // by rank: its steps that are over
  bool stop = false;            // all meet as soon as they can
  std::vector<int32_t> events;  // in order, where a schedule is recorded: 2 rank, +1 for a push
};

// The files that a rule's clock names, read. UserError naming file and line: missing, malformed, another number of
// workers.
struct ClockFiles {
  ClockFiles(const ServerConfig& config, int ranks);
  std::vector<std::vector<double>> durations;  // of delay.file: by line, then column
  std::vector<int32_t> events;                 // of replay
};
// The order of pulls and pushes as a file: a line "lmx schedule 1: 4 workers", then "pull 0" or "push 0" a line.
// RunError: cannot write.
void write_schedule(const std::string& path, const std::vector<int32_t>& events, int ranks);

// One worker's times. Of a replay they are positions in the schedule.
class WorkerClock {
 public:
  WorkerClock(const ServerConfig& config, std::shared_ptr<const ClockFiles> files, RandomKey key, int rank, int ranks);
  // Of step `step` (0-based); `now`: when this worker's last event was.
  double pull(int64_t step, double now) const;
  double push(int64_t step, double now) const;
  // UserError: a schedule of fewer steps.
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
  std::vector<double> turns_;  // of a replay: positions of this worker's events
};

}  // namespace lmx::train
