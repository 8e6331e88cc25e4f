// The forward and backward pass of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/position.h"

namespace lmx {

// Forward and backward pass of a sub-batch, in seconds since the step began.
struct SubBatchTime {
  double begin = 0, end = 0;
  int64_t tokens = 0;  // targets
};

// The sums of one micro-batch, which the device may still be computing.
struct PendingLoss {
  Reading<double> nats;
  LossTerms terms;
  int64_t tokens = 0;
};

struct StepLoss {
  double nats = 0;
  std::vector<double> terms = {};  // sums of the model's loss terms, in the order of RunState::terms; empty: all 0
  int64_t tokens = 0;
  int64_t positions = 0, padded = 0;        // for sub-batches: tokens of both sides; the same with padding
  double squares = 0;                       // of the norm of gradients that are not summed: the mean over ranks
  double seconds = 0, slowest = 0;          // of forward and backward: mean over ranks, and the slowest rank
  std::vector<SubBatchTime> timeline = {};  // of this rank's sub-batches
  std::vector<PendingLoss> pending = {};    // losses that are not yet part of the sums
};

// Whether a rank makes steps together with all ranks or separately, as a worker of a parameter server does. A worker
// samples separate candidates, averages over its part of the batch, and does not exchange gradients during backward.
enum class StepOf : uint8_t { group, worker };

class StepRunner {
 public:
  StepRunner(RunState& run, StepOf kind);
  std::vector<Batch> draw(int64_t step) const;  // this rank's part of the step, as micro-batches
  StepPlan begin(std::span<const Batch> share, int64_t step);
  // Adds up the gradients of the micro-batches. Each is scaled by the count of the whole step, so that the sum is the
  // gradient of the whole batch. Some losses of the result may be pending.
  StepLoss forward_backward(std::span<const Batch> share, const StepPlan& plan);
  // Adds the pending losses to the sums. Waits for the device, unless a later result was read already.
  void read_losses(StepLoss& sum) const;
  double unscale() const;      // factor from scaled gradients to those of the mean
  double unscale_own() const;  // the same for the mean over this rank's part of the batch
  // Collective: reduces the loss over all ranks, and finds whether any rank has received a signal (RunState::signal).
  StepLoss agree(const StepLoss& own);
  // UserError: the batcher's step_size() is not the size of the step's batches, which has divided the gradients.
  void check_size(const StepLoss& all, int64_t step) const;

 private:
  PendingLoss micro_batch(const Batch& batch, const StepPlan& plan, bool last);
  double terms_of(const StepSize& size) const;

  RunState& run_;
  Session& s_;
  StepOf kind_;
  Tape tape_;
  double mean_over_ = 1;  // tokens or sequences of the step, by which the gradients are divided
  double own_terms_ = 1;  // those of this rank's part of the step
};

}  // namespace lmx
