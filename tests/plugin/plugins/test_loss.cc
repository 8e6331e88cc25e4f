// A focal loss whose fields have names that no loss of lmx uses. The field `fault` breaks one promise.
#include <stdexcept>

#include "lmx/array_ops.h"
#include "lmx/loss.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct Config {
  double sharpness = 2;
  double spread = 0.1;
  int64_t fault = 0;
  void fields(Fields& f) {
    f.field("sharpness", sharpness, "exponent of 1 - p", {1, 100});
    f.field("spread", spread, "half width of the weight's initial values", kNonNegative);
    f.field("fault", fault, "the promise that is broken; 0: none", kNonNegative);
  }
  Traits traits() const { return {{trait::kChangeable, "sharpness"}}; }
  OutputConfig output() const {
    OutputConfig own;
    own.init.scale = spread;
    return own;
  }
};

LossEnv without_tie(LossEnv env, int64_t fault) {
  if (fault == 6) env.tie = "";
  return env;
}

class TestLoss final : public OutputLoss {
 public:
  TestLoss(const Config& c, const LossEnv& env, const std::string& where)
      : OutputLoss(c.output(), without_tie(env, c.fault), false, where), fault_(c.fault), sharpness_(c.sharpness) {
    if (fault_ == 13 && !env.vocabulary) throw UserError("[test_loss] no words");
  }

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs = OutputLoss::parameters();
    if (fault_ == 7) specs.push_back(specs[0]);
    if (fault_ == 14) specs[0].sparse = true;
    return specs;
  }
  LossValue forward(Context& ctx, const ParameterStore& params, const Var& features, const Tensor& targets,
                    const StepPlan& plan) const override {
    if (fault_ == 8) throw std::out_of_range("a loss without its map");
    const SoftmaxInputs in = inputs(params, features, targets);
    const Var logits = linear(ctx, in.h, in.w, in.b);
    const Var log_p = gather(ctx, log_softmax(ctx, logits), 1, targets.reshape({targets.numel(), 1}));
    Var factor = pow(ctx, add_scalar(ctx, scale(ctx, exp(ctx, log_p), -1), 1), sharpness_);
    if (fault_ == 2) factor = stop_gradient(ctx, factor);
    double sign = -1;
    if (fault_ == 1) sign /= static_cast<double>(targets.numel());
    if (fault_ == 10) sign *= 1 + 0.1 * plan.sampler_key.uniform(0);
    if (fault_ == 12) sign *= 1 + 0.1 * ++calls_;
    const Var loss = scale(ctx, sum(ctx, multiply(ctx, factor, log_p)), sign);
    if (fault_ == 9 && ctx.tape)
      ctx.tape->record("test_loss", {log_p}, {loss},
                       [](Tape&) { throw std::out_of_range("a gradient without its map"); });
    return value(ctx, loss, fault_ == 4 ? loss : scale(ctx, sum(ctx, log_p), -1));
  }
  Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features, const Tensor& targets,
                  const LogitsVisitor& visit) const override {
    Tensor nll = OutputLoss::evaluate(ctx, params, features, targets, fault_ == 15 ? LogitsVisitor() : visit);
    if (fault_ == 3) nll.data<float>()[0] *= 2;
    return nll;
  }
  bool draws_candidates() const override { return fault_ == 11; }

 private:
  int64_t fault_;
  double sharpness_;
  mutable int calls_ = 0;
};

std::unique_ptr<Loss> make(const Node& config, const std::string& path, const LossEnv& env) {
  return std::make_unique<TestLoss>(read_config<Config>(config, path), env, place_of_key(config, path, "tie"));
}

}  // namespace

LMX_PLUGIN(loss, test_loss, Config, make)
