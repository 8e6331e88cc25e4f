// The update of the parameters after a step, and what happens if its gradients or its loss are not usable.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/loop/step.h"

namespace lmx {

// The error that ends a run if `train.on_divergence` is `stop`.
class Diverged : public RunError {
 public:
  using RunError::RunError;
  ~Diverged() override;
};

// Ends the run because it has diverged. All ranks call it at the same place. Throws Diverged on rank 0, and on ranks of
// its process; ranks in other processes end a little later, so that rank 0 reports the reason first.
[[noreturn]] void end_diverged(const Session& s, const std::string& why);

// The result of a step's update; equal on all ranks that make the step together.
struct Outcome {
  double grad_norm = 0;
  std::string divergence;                    // why a divergence prevented the update; "" if none did
  std::vector<std::string> overflow;         // gradients that exceeded the range of half precision
  std::map<std::string, int64_t> rows = {};  // updated rows of parameters with row-sparse gradients, over all ranks
  bool made() const { return divergence.empty() && overflow.empty(); }
};

// The update of a step.
struct StepUpdate {
  GradientMeasure measure;  // of the gradients that ranks sum
  double lr = 0;
  std::map<std::string, int64_t> rows = {};  // see Outcome
  GradientMeasure own = {};                  // of this rank's gradients that are not summed
  bool enqueued = false;
};

// Coalesces the gradients and measures them for the clip rules. `unscale`, `divided`: see GradientMeasure.
GradientMeasure gradient_measure(Session& s, ParameterStore& params, double unscale,
                                 const std::map<std::string, Tensor>& divided = {});

// The rows of each row-sparse gradient, which must be coalesced.
std::map<std::string, int64_t> sparse_rows(const ParameterStore& params);

class Updater {
 public:
  Updater(RunState& run, StepOf kind) : run_(run), s_(run.s), kind_(kind) {}
  double learning_rate(int64_t step) const;
  // Whether start() enqueues the update, before the host knows whether it may be made.
  bool early() const;
  // Coalesces the gradients and enqueues the computation of their norms, and the update if it is early(). `steps`: has
  // the factors from the gradients to those of the mean loss. Does not wait for the device.
  StepUpdate start(int64_t step, const StepRunner& steps);
  // Makes the update if start() did not, or handles an overflow or a divergence. `loss`, `clipped`: of results_of().
  // Throws Diverged.
  void finish(StepUpdate& update, const ClipResult& clipped, const StepLoss& loss, int64_t step);

  // The same for a rank that makes its updates alone. `apply` makes the update with a learning rate, or gets none if it
  // is left out. Returns the error that ends the run, or "".
  std::string finish_alone(const StepLoss& loss, const ClipResult& clipped, int64_t step,
                           const std::function<void(std::optional<double> lr)>& apply);
  int64_t next_update() const { return run_.at.updates + 1; }  // its number, counted from 1
  void advance();  // changes what the next step starts with, after an update

 private:
  Outcome judge(const StepLoss& loss, const ClipResult& clipped) const;
  void account(const StepLoss& loss, const Outcome& outcome, int64_t step);
  void apply(StepUpdate& update);
  void end_apply(StepUpdate& update);
  void end_update();
  void add_loss(const StepLoss& loss);
  std::string divergence(const StepLoss& loss, const ClipResult& clipped) const;
  void handle_overflow(const StepLoss& loss, const Outcome& outcome, int64_t step);
  void handle_divergence(const std::string& reason, int64_t step);
  bool reports() const { return s_.leads() || kind_ == StepOf::worker; }  // whether this rank logs a skipped update

  RunState& run_;
  Session& s_;
  StepOf kind_;
};

// A step that ranks make together, after its gradients were exchanged.
struct StartedStep {
  StepLoss own;  // of this rank; parts may be pending
  StepUpdate update;
};
StartedStep start_step(Session& s, StepRunner& steps, Updater& updater, int64_t step);
// Waits for the results of the step. Returns the loss of all ranks and the measure of their gradients, which finish()
// needs. Both are equal on all ranks: the square of the norm is the mean over ranks for gradients that are not summed,
// and a gradient that is not finite on one rank is so on all. Collective.
std::pair<StepLoss, ClipResult> results_of(const Session& s, StepRunner& steps, StartedStep& started);

// Computes the gradients of a step that a rank makes alone, of which its servers have then selected rows. Returns its
// loss and the measure of the gradients.
std::pair<StepLoss, GradientMeasure> worker_gradients(Session& s, StepRunner& steps, std::span<const Batch> share,
                                                      const StepPlan& plan);

}  // namespace lmx
