#include "nn/component.h"
#include "nn/losses.h"

namespace lmx::losses {
namespace {

struct FullSoftmaxConfig : OutputConfig {
  static FullSoftmaxConfig read(const Node& n, const std::string& path) {
    return read_config<FullSoftmaxConfig>(n, path);
  }
};

class FullSoftmax final : public Loss {
 public:
  FullSoftmax(FullSoftmaxConfig config, const LossEnv& env) : config_(std::move(config)), env_(env) {}

  std::vector<ParameterSpec> parameters() const override { return config_.parameters(env_, false); }
  Var forward(Context& ctx, ParameterStore& params, const Var& features, const Tensor& targets,
              const StepPlan&) const override {
    return full_softmax_loss(ctx, features, params.at(kWeight), bias_of(params), targets, Tensor());
  }
  int64_t macs_per_token(int64_t) const override { return env_.vocab_size * env_.feature_size; }
  const std::string& normalize() const override { return config_.normalize; }

 private:
  FullSoftmaxConfig config_;
  LossEnv env_;
};

}  // namespace

std::unique_ptr<Loss> make_full_softmax(const Node& config, const std::string& path, const LossEnv& env) {
  return std::make_unique<FullSoftmax>(FullSoftmaxConfig::read(config, path), env);
}
Node full_full_softmax(const Node& config, const std::string& path) {
  return component::full<FullSoftmaxConfig>("full_softmax", config, path);
}

}  // namespace lmx::losses
