#include "nn/component.h"
#include "nn/losses.h"

namespace lmx::losses {
namespace {

struct FullSoftmaxConfig : OutputConfig {
  double label_smoothing = 0;
  void fields(Fields& f) {
    f.field("label_smoothing", label_smoothing,
            "share of the target's probability that is spread evenly over all words; evaluation never smooths",
            {0, 0.99});
    OutputConfig::fields(f);
  }
  Traits traits() const { return {{trait::kChangeable, "label_smoothing"}}; }
  static FullSoftmaxConfig read(const Node& n, const std::string& path) {
    return read_config<FullSoftmaxConfig>(n, path);
  }
};

class FullSoftmax final : public OutputLoss {
 public:
  FullSoftmax(const FullSoftmaxConfig& config, const LossEnv& env, const std::string& where)
      : OutputLoss(config, env, false, where), smoothing_(config.label_smoothing) {}

  LossValue forward(Context& ctx, const ParameterStore& params, const Var& features, const Tensor& targets,
                    const StepPlan&) const override {
    return full_softmax_loss(ctx, inputs(params, features, targets), smoothing_);
  }

 private:
  double smoothing_;
};

std::unique_ptr<Loss> make_full_softmax(const Node& config, const std::string& path, const LossEnv& env) {
  return std::make_unique<FullSoftmax>(FullSoftmaxConfig::read(config, path), env, place_of_key(config, path, "tie"));
}

}  // namespace

Entry full_softmax() {
  return component::entry<FullSoftmaxConfig, LossFactory>("full_softmax", make_full_softmax);
}

}  // namespace lmx::losses
