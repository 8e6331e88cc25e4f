#include "lmx/loss.h"

#include "nn/component.h"
#include "nn/losses.h"

namespace lmx {

Loss::~Loss() = default;

namespace {

Tensor bias_value(const ParameterStore& params) {
  return params.contains(losses::kBias) ? params.at(losses::kBias).value() : Tensor();
}

using Make = std::unique_ptr<Loss> (*)(const Node&, const std::string&, const LossEnv&);

const component::Entry<Make>& entry(const Node& config, const std::string& path) {
  static const std::vector<component::Entry<Make>> entries{
      {"full_softmax", losses::make_full_softmax, losses::full_full_softmax},
      {"sampled_softmax", losses::make_sampled_softmax, losses::full_sampled_softmax}};
  return component::find(entries, config, path, "full_softmax");
}

}  // namespace

Tensor Loss::evaluate(Context& ctx, const ParameterStore& params, const Tensor& features, const Tensor& targets) const {
  return full_softmax_nll(ctx, features, params.at(losses::kWeight).value(), bias_value(params), targets);
}

Tensor Loss::logits(Context& ctx, const ParameterStore& params, const Tensor& features) const {
  return full_softmax_logits(ctx, features, params.at(losses::kWeight).value(), bias_value(params));
}

std::vector<ParameterSpec> losses::OutputConfig::parameters(const LossEnv& env, bool sparse) const {
  std::vector<ParameterSpec> specs{{kWeight, {env.vocab_size, env.feature_size}, init, sparse}};
  if (bias) specs.push_back({kBias, {env.vocab_size}, {"zeros", 0}, sparse});
  return specs;
}

std::unique_ptr<Loss> make_loss(const Node& config, const std::string& path, const LossEnv& env) {
  return entry(config, path).make(config, path, env);
}
Node full_loss_config(const Node& config, const std::string& path) {
  return entry(config, path).full(config, path);
}

}  // namespace lmx
