// Optimizers, clipping and the moving average of parameters. With a row-sparse gradient, only its rows are updated
// ("lazy"): momentum, moments and decay of other rows do not change. Adam's bias correction counts the updates of the
// run, as in torch's SparseAdam. The moving average is exact for all rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/parameters.h"

namespace lmx {

// An update multiplies the gradient by `number`, and by a factor that the device may still be computing. It changes
// nothing if that factor is NaN.
struct GradScale {
  double number = 1;
  Tensor factor = {};  // (1) f64, in the memory of the context's device; undefined: 1
};

struct ParameterUpdate {
  Var* param;
  GradScale grad_scale = {};
};

// The sum of the weights that an exponential moving average, which begins with 0 and keeps `beta` of itself in each
// update, gives to its `updates` values: 1 - beta^updates. Adam divides its moments by it (Kingma and Ba 2015,
// algorithm 1).
inline double sum_of_weights(double beta, int64_t updates) {
  return 1 - std::pow(beta, static_cast<double>(updates));
}

// The smallest part of a parameter that an optimizer can update without the rest of the parameter.
enum class Grain : uint8_t { element, parameter };

// lmx/slot_optimizer.h implements this interface for optimizers that compute each element separately.
class LMX_API Optimizer {
 public:
  using Factory = std::unique_ptr<Optimizer> (*)(const Node& config, const std::string& path);

  virtual ~Optimizer();
  // The grain of this parameter's update. A parameter server updates rows of a parameter on different ranks, so it
  // needs Grain::element. A ShardStrategy gives blocks of kSumBlock elements to different ranks if the grain is
  // element, and whole parameters otherwise. The state tensors of such an optimizer have the shape of the parameter.
  // Default: parameter.
  virtual Grain grain(const std::string& param) const;
  // Whether this parameter's update depends on gradients of earlier steps. If not, it is a function of the value, the
  // gradient and the rate. Default: yes.
  virtual bool keeps_state(const std::string& param) const;
  // Called once, before the first update, with the parameters that this object will update. UserError that begins with
  // `where`: it cannot update one of them. Default: it can update all.
  virtual void begin(const std::vector<ParameterSpec>& params, const std::string& where);
  // Updates one parameter in place with `grad_scale` times its gradient, which is already coalesced, and calls
  // param.changed(). `number` counts the updates from 1; skipped updates do not count. Does nothing if the parameter
  // has no gradient.
  // A row-sparse gradient changes its rows only. The gradient must not be written to, because ranks share it.
  virtual void update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale = 1) = 0;
  // update() of several parameters, with equal results. Default: one after the other, for which the host waits until
  // the device has computed their factors. A device may need fewer launches for all of them together.
  virtual void update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number);
  // State tensors by "<parameter>.<slot>" ("softmax.weight.sum"). load() restores the result of state(). A parameter
  // that never had a gradient has no slots. UserError: a slot that is unknown, that is missing although the parameter
  // has others, or that has another shape or type.
  virtual StateDict state() const = 0;
  virtual void load(Context& ctx, const ParameterStore& params, const StateDict& state) = 0;
  // For an optimizer with the trait kAverages: replaces the values of its parameters by their averages if `on` is true,
  // and restores the values, bit by bit, if it is false. Other functions are not called in between. Default: nothing.
  virtual void evaluate(Context& ctx, ParameterStore& params, bool on);
};

// The config of an optimizer plugin states its learning rate as the trait kLearningRate (lmx/config.h).
using OptimizerFactory = Optimizer::Factory;

// One optimizer by its key `name`: built in, or a plugin. A UserError suggests the nearest name. Errors of a plugin
// name it.
LMX_API std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path);
// From `optimizer:` of a recipe: one optimizer, or rules {params: pattern, name: ..., ...} by name, of which the first
// that matches a parameter updates it. The learning rate that updates get is that of the first rule; another rule
// multiplies it by the ratio of the rates that the recipe gives. `params`: of the model. UserError: a parameter without
// a rule, a rule without parameters, an optimizer that cannot update a parameter.
LMX_API std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path,
                                                  const std::vector<ParameterSpec>& params);
LMX_API Node full_optimizer_config(const Node& config, const std::string& path);

// `clip:` of a recipe: a list of {params: pattern, norm: x}, or one number for all parameters. 0 disables a rule.
struct ClipRule {
  ParamPattern params{".*"};  // a parameter belongs to the first rule whose pattern matches its name
  double norm = 0;
};
LMX_API std::vector<ClipRule> read_clip(const Node& clip, const std::string& path);
// UserError at the rule's place if no parameter of the model belongs to a rule; `names` are the model's parameters.
LMX_API void check_clip(const std::vector<ClipRule>& rules, const std::vector<std::string>& names);

// The norm of the gradients before clipping, and how they are clipped.
struct ClipResult {
  double norm = 0;                           // of all gradients, before clipping
  bool finite = true;                        // no gradient has an Inf or NaN; otherwise nothing is clipped
  std::map<std::string, double> factors;     // of the parameters whose gradients exceed their group's norm
  double unscale = 1;                        // for all parameters: the factor that makes the scale of the gradients 1
  std::vector<std::string> not_finite = {};  // parameters whose gradients have an Inf or NaN, by name
  double factor(const std::string& param) const {
    const auto it = factors.find(param);
    return it == factors.end() ? unscale : it->second * unscale;
  }
};

// The squares of a gradient are added in blocks of so many elements, of which the last may be smaller, and the sums of
// the blocks in order. So the norm does not depend on how blocks are divided among ranks.
inline constexpr int64_t kSumBlock = 4096;
// The sums of the squares of the blocks of each tensor (f32 or f64), one tensor after the other: (blocks) f64.
LMX_API Tensor block_squares(Context& ctx, std::span<const Tensor> tensors);

// A ClipResult that the device may still be computing. Gradients are not changed: an update with scale(param) clips
// them, which saves a pass over them. Norms and rules refer to `unscale` times the stored gradients.
class LMX_API GradientMeasure {
 public:
  GradientMeasure() = default;
  // Enqueues the work. Gradients must be coalesced. `divided`: the block_squares() of further gradients, which no rank
  // has as a whole, by the names of their parameters.
  GradientMeasure(Context& ctx, const ParameterStore& params, const std::vector<ClipRule>& rules, double unscale = 1,
                  const std::map<std::string, Tensor>& divided = {});
  // For the update of a parameter that has a gradient. Its factor is NaN if any gradient has an Inf or NaN.
  GradScale scale(const std::string& param) const;
  void free_factors() { factors_ = {}; }  // after the last scale()
  ClipResult result() const;              // waits for the device

 private:
  struct Place {
    int64_t rule, sum;  // the index of the factor of its rule, and that of the sum of its squares
  };
  std::map<std::string, Place> places_;  // of each parameter that has a gradient
  int64_t total_ = 0;                    // the index of the sum of all squares
  double unscale_ = 1;
  Tensor factors_;           // see optim::ClipFactors, and the sums of the squares
  Reading<double> reading_;  // of factors_
};
LMX_API ClipResult measure_gradients(Context& ctx, const ParameterStore& params, const std::vector<ClipRule>& rules,
                                     double unscale = 1);

// Exponential moving average of parameters: a <- decay a + (1 - decay) p after each update, from a = p at the start.
// Rows that an update does not change are averaged later, for all missed updates at once with their unchanged value:
// before an update next changes the row, or when the average is used. The result has the same bits for dense and
// row-sparse gradients, and does not depend on when the average was used or saved.
//     ema.before_update(ctx, all parameters that the update changes); the update; ema.count_update()
class LMX_API Ema {
 public:
  // UserError: a decay outside (0, 1); a pattern that matches no parameter.
  Ema(const ParameterStore& params, double decay, const ParamPattern& pattern);
  // The update will change the rows of each parameter that its gradient (coalesced) contains; all rows if it has no
  // gradient. On a device one kernel serves about 60 parameters.
  void before_update(Context& ctx, std::span<const Var* const> params);
  void count_update();
  // Exchanges averages and values, for evaluation; call again to undo.
  void swap(Context& ctx, ParameterStore& params);
  StateDict state(Context& ctx, const ParameterStore& params);
  void load(const StateDict& state);

 private:
  struct Average {
    Tensor values;
    // The number of updates that `values` includes: one number for all rows, or one for each row of a row-sparse
    // parameter.
    int64_t averaged = 0;
    std::vector<int64_t> row_averaged = {};
  };
  class Steps;
  void settle(Steps& steps, Average& average, const Tensor& value) const;
  void settle_rows(Steps& steps, Average& average, const Tensor& value, const std::vector<int32_t>& rows) const;
  double decay_;
  int64_t updates_ = 0;
  bool swapped_ = false;
  std::map<std::string, Average> averages_;
};

}  // namespace lmx
