// The training loop. Each of its parts has a file: a step (step.h), the update (update.h), validation
// (validator.h), checkpoints (checkpointer.h), records (run_log.h), and the loops of workers
// (worker_loop.h) and of replicas (replica_loop.h).
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "train/loop/checkpointer.h"
#include "train/loop/replica_loop.h"
#include "train/loop/update.h"
#include "train/loop/validator.h"
#include "train/loop/worker_loop.h"

namespace lmx {

class Trainer {
 public:
  // `until`: the step after which the run pauses; 0: no pause.
  Trainer(Session& session, std::string directory, const Position& at, int64_t until = 0);
  // Trains until the last step, a pause or a signal. Throws Diverged, or RunError for a full disk. Returns 0, 130 or
  // 143.
  int run();
  bool paused() const { return run_.paused(); }
  double valid_nll() const { return validator_.nll(); }
  double valid_bpb() const { return validator_.bpb(); }
  double valid_ppl() const { return validator_.ppl(); }  // the last known value
  const Position& position() const { return run_.at; }
  // Number of completed steps. May be called from any thread.
  const std::atomic<int64_t>& reached() const { return log_.reached(); }
  const std::string& stopped() const {
    return run_.stopped;
  }  // why the run ended before the last step; "" if it did not
  bool reached_target() const { return validator_.reached_target(); }  // the run ended because `stop.when` was met
  const TrafficCounter& traffic() const { return log_.traffic(); }
  void record(const std::string& line) { log_.write_line(line); }  // a line that is not a measurement; rank 0 only

 private:
  Trainer(Session& session, std::string directory, const Position& at, int64_t until, StepOf kind);
  void run_steps();
  void finish(StartedStep& step);
  void synchronise();
  bool runs_ahead(int64_t next) const;
  void validate_and_save();
  void validate();
  void save();
  int interrupted();

  RunState run_;
  Session& s_;
  RunLog log_;
  StepRunner steps_;
  Updater updater_;
  Validator validator_;
  Checkpointer checkpointer_;
  std::optional<WorkerLoop> workers_;    // if ranks do not run in lockstep
  std::optional<ReplicaLoop> replicas_;  // if ranks have their own values of all parameters between synchronisations
};

}  // namespace lmx
