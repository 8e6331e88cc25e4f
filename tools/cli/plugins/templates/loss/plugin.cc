// A focal loss, to start from (Lin et al. 2017, "Focal Loss for Dense Object Detection", equation 4): targets that the
// model already predicts well count less. With p the probability of the target,
//
//   loss = sum over the targets of -(1 - p)^focus log p
//
// The base class provides the output layer and the likelihoods that validation records. See lmx/loss.h for what each
// function promises, lmx/ops.h and lmx/array_ops.h for the operations.
#include "lmx/array_ops.h"
#include "lmx/loss.h"
#include "lmx/plugin.h"

namespace {

// The keys of `loss: {name: @name@, ...}` in a recipe. This list reads, checks, documents and prints them.
struct @Name@Config : lmx::OutputConfig {
  double focus = 2;
  void fields(lmx::Fields& f) {
    f.field("focus", focus, "exponent of 1 - p", {1, 100});
    lmx::OutputConfig::fields(f);
  }
  // The keys that a resumed run may change.
  lmx::Traits traits() const { return {{lmx::trait::kChangeable, "focus"}}; }
};

class @Name@ : public lmx::OutputLoss {
 public:
  @Name@(const @Name@Config& config, const lmx::LossEnv& env, const std::string& where)
      : OutputLoss(config, env, false, where), focus_(config.focus) {}

  // A sum over the targets, not a mean: lmx divides it by the number of tokens of the whole step.
  lmx::LossValue forward(lmx::Context& ctx, const lmx::ParameterStore& params, const lmx::Var& features,
                         const lmx::Tensor& targets, const lmx::StepPlan&) const override {
    const lmx::SoftmaxInputs in = inputs(params, features, targets);
    const lmx::Var logits = lmx::linear(ctx, in.h, in.w, in.b);  // (n, V)
    const lmx::Tensor columns = targets.reshape({targets.numel(), 1});
    const lmx::Var log_p = lmx::gather(ctx, lmx::log_softmax(ctx, logits), 1, columns);  // (n, 1)
    const lmx::Var missed = lmx::add_scalar(ctx, lmx::scale(ctx, lmx::exp(ctx, log_p), -1), 1);
    const lmx::Var weighted = lmx::multiply(ctx, lmx::pow(ctx, missed, focus_), log_p);
    return value(ctx, lmx::scale(ctx, lmx::sum(ctx, weighted), -1), lmx::scale(ctx, lmx::sum(ctx, log_p), -1));
  }

 private:
  double focus_;
};

std::unique_ptr<lmx::Loss> make_@name@(const lmx::Node& config, const std::string& path, const lmx::LossEnv& env) {
  return std::make_unique<@Name@>(lmx::read_config<@Name@Config>(config, path), env,
                                  lmx::place_of_key(config, path, "tie"));
}

}  // namespace

LMX_PLUGIN(loss, @name@, @Name@Config, make_@name@)
