// Optimizers, clipping and the moving average of parameters. Row-sparse gradients touch their rows only ("lazy"):
// momentum, moments, decay and averages of other rows stand still; Adam's bias correction counts global steps, as
// torch's SparseAdam.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/parameters.h"

namespace lmx {

class LMX_API Optimizer {
 public:
  virtual ~Optimizer();
  // Updates one parameter in place from `grad_scale` times its gradient (coalesced already) and calls param.changed().
  // `step` counts from 1. Nothing happens without a gradient.
  virtual void update(Context& ctx, Var& param, double lr, int64_t step, double grad_scale = 1) = 0;
  // State tensors by "<parameter>.<slot>" ("softmax.weight.sum"). load() takes what state() gave.
  // A parameter that never had a gradient has no slots. UserError: a slot that is unknown, missing beside the
  // parameter's others, or of another shape or type.
  virtual StateDict state() const = 0;
  virtual void load(Context& ctx, const ParameterStore& params, const StateDict& state) = 0;
  // State bytes that `spec` will take: for --dry-run.
  virtual int64_t state_bytes(const ParameterSpec& spec) const = 0;
};

// From `optimizer:` of a recipe, by its key `name`: sgd, adagrad, adam, adamw. UserError names the nearest.
LMX_API std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path);
LMX_API Node full_optimizer_config(const Node& config, const std::string& path);

// `clip:` of a recipe: a list of {params: regex, norm: x}; or one number for all parameters. 0 turns a rule off.
struct ClipRule {
  std::string params = ".*";  // a parameter belongs to the first rule whose pattern matches the whole name
  double norm = 0;
};
LMX_API std::vector<ClipRule> read_clip(const Node& clip, const std::string& path);
struct ClipResult {
  double norm = 0;                        // of all gradients, before clipping
  bool finite = true;                     // no gradient has an Inf or NaN; otherwise nothing is clipped
  std::map<std::string, double> factors;  // of the parameters whose gradients are above their group's norm
  double unscale = 1;                     // of all: what makes the gradients' scale 1
  double factor(const std::string& param) const {
    const auto it = factors.find(param);
    return it == factors.end() ? unscale : it->second * unscale;
  }
};
// Norms and factors alone: for an update with grad_scale = factor(param), which saves a pass over the gradients. These
// are `unscale` times what the parameters hold, and that is what norms and rules mean.
LMX_API ClipResult measure_gradients(Context& ctx, const ParameterStore& params, const std::vector<ClipRule>& rules,
                                     double unscale = 1);
// Scales each group's gradients so that its global norm is at most the rule's. Gradients must be coalesced.
LMX_API ClipResult clip_gradients(Context& ctx, ParameterStore& params, const std::vector<ClipRule>& rules);

// Exponential moving average of parameters (decay in (0, 1)); sparse rows are averaged when touched.
class LMX_API Ema {
 public:
  Ema(Context& ctx, const ParameterStore& params, double decay, const std::string& pattern);
  // After the optimizer's update of `param`, before its gradient is cleared.
  void update(Context& ctx, const Var& param);
  void swap(ParameterStore& params);  // exchanges averages and values, for evaluation; call again to undo
  StateDict state() const;
  void load(const StateDict& state);

 private:
  double decay_;
  std::map<std::string, Tensor> averages_;
};

}  // namespace lmx
