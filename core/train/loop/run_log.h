// The output of a run while it trains: records in metrics.jsonl, TensorBoard events, and the progress line.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runfiles/metrics.h"
#include "runfiles/tensorboard.h"
#include "runfiles/traffic.h"
#include "train/loop/step.h"

namespace lmx {

// Steps, tokens and seconds since the last record: those of this rank, or of all workers (mean of steps, sum of tokens,
// maximum of seconds).
struct Lap {
  double steps = 0, tokens = 0, seconds = 0;
};

class RunLog {
 public:
  explicit RunLog(RunState& run);
  void start_clock() { watch_.start(); }
  void stop_clock() { run_.at.seconds += watch_.stop(); }
  // Counts a step that this rank has completed, as `tokens` of its speed, and shows progress. `step`: steps that it has
  // completed. `ranks`: how many ranks make such steps side by side, for the speed that is shown before the first
  // record.
  void count_step(int64_t step, const StepLoss& own, int64_t tokens, int ranks);
  // Counts how much longer than the mean the slowest rank computed.
  void count_spread(const StepLoss& all);
  // Moves the communicator's ledger to the counters. Leaves it to a later call while values are exchanged.
  void count_traffic();
  Lap lap() const;
  // Collective: writes the training record, and a record for each rank.
  void write_step(const Lap& lap);
  void write(const Record& record);          // rank 0 only
  void write_line(const std::string& line);  // a line that is not a measurement
  void sync();                               // the file reaches the disk
  // Moves the counters of this rank since the last record to Position::open, which a checkpoint stores.
  void fold_window();
  double tokens_until(int64_t step);  // targets of all steps before `step`
  const std::atomic<int64_t>& reached() const { return reached_; }
  const TrafficCounter& traffic() const { return traffic_; }

 private:
  void open_metrics();
  void set_pace(const Lap& lap);
  LossText loss_text() const;
  Record own_record();
  Record step_record(const std::vector<std::string>& ranks);
  void add_scale(Record& record) const;

  RunState& run_;
  Session& s_;
  std::optional<MetricsFile> metrics_;  // on rank 0 only
  std::optional<EventFile> events_;
  Stopwatch watch_;
  Pace pace_;
  TrafficCounter traffic_;
  std::atomic<int64_t> reached_{0};
  // Counted since the last record (or resume):
  int64_t laps_ = 0, folded_laps_ = 0;  // steps; those of them in Position::open
  int64_t tokens_ = 0;                  // of the same steps
  double spread_ = 0;                   // (slowest - mean) / mean of the ranks' times, summed over spread_steps_
  int64_t spread_steps_ = 0;
  std::vector<SubBatchTime> timeline_;    // sub-batches of this rank's last step
  std::map<int64_t, int64_t> durations_;  // number of sub-batches by duration_bin()
};

}  // namespace lmx
