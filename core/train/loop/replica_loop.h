// The training loop of ranks that have their own values of all parameters between synchronisations
// (lmx/replica_strategy.h). They make their steps side by side, and wait for one another only at exchanges and
// meetings.
#pragma once

#include <functional>
#include <string>

#include "train/loop/meetings.h"
#include "train/loop/update.h"

namespace lmx {

class ReplicaLoop {
 public:
  // `validate_and_save`: see Meetings.
  ReplicaLoop(RunState& run, RunLog& log, StepRunner& steps, Updater& updater, std::function<void()> validate_and_save);
  // Trains until the last step, a pause, or the first meeting after a signal. Throws Diverged.
  void run();

 private:
  void make_step();

  RunState& run_;
  Session& s_;
  RunLog& log_;
  StepRunner& steps_;
  Updater& updater_;
  Meetings meetings_;
  std::string failure_;  // the error because of which this rank cannot continue
};

// Computes the gradients of this rank and makes its update. Returns the error that ends the run, or "".
std::string update_replica(Session& s, StepRunner& steps, Updater& updater, int64_t step, StepLoss& loss);

}  // namespace lmx
