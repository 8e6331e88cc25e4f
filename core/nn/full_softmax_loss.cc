#include "nn/component.h"
#include "nn/losses.h"

namespace lmx::losses {
namespace {

struct FullSoftmaxConfig : OutputConfig {
  static FullSoftmaxConfig read(const Node& n, const std::string& path) {
    return read_config<FullSoftmaxConfig>(n, path);
  }
};

class FullSoftmax final : public OutputLoss {
 public:
  FullSoftmax(const FullSoftmaxConfig& config, const LossEnv& env, const std::string& where)
      : OutputLoss(config, env, false, where), macs_(env.vocab_size * env.feature_size) {}

  Var forward(Context& ctx, ParameterStore& params, const Var& features, const Tensor& targets,
              const StepPlan&) const override {
    return full_softmax_loss(ctx, features, weight(params), bias(params), targets, Tensor());
  }
  int64_t macs_per_token(int64_t) const override { return macs_; }

 private:
  int64_t macs_;
};

}  // namespace

std::unique_ptr<Loss> make_full_softmax(const Node& config, const std::string& path, const LossEnv& env) {
  return std::make_unique<FullSoftmax>(FullSoftmaxConfig::read(config, path), env, place_of(config, path, "tie"));
}
Node full_full_softmax(const Node& config, const std::string& path) {
  return component::full<FullSoftmaxConfig>("full_softmax", config, path);
}

}  // namespace lmx::losses
