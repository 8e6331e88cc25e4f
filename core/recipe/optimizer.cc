// The optimizer that a recipe names. Errors in the functions of a plugin name the plugin.
#include "lmx/optim.h"

#include <cmath>
#include <optional>
#include <utility>

#include "optim/optimizers.h"
#include "plugin/choice.h"
#include "recipe/choices.h"

namespace lmx {
namespace {

Choice<OptimizerFactory> choose_optimizer(const Node& config, const std::string& path) {
  return {PluginKind::optimizer, optim::entries(), config, path, nullptr};
}

double rate_of(const Choice<OptimizerFactory>& choice) {
  const std::string text = choice.trait(trait::kLearningRate);
  const std::optional<double> rate = parse_double(text);
  if (rate && std::isfinite(*rate) && *rate >= 0) return *rate;
  throw UserError(str("[plugin] ", choice.plugin() ? choice.plugin()->path : "lmx", ": ",
                      text.empty() ? "the config states no learning rate"
                                   : str("the config states the learning rate '", text, "', no finite number from 0"),
                      "; its function traits() must return {lmx::trait::kLearningRate, lmx::trait_value(RATE)}"));
}

// The optimizer of a plugin.
class PluginOptimizer final : public Optimizer {
 public:
  PluginOptimizer(const PluginInfo& plugin, std::unique_ptr<Optimizer> own) : plugin_(plugin), own_(std::move(own)) {}

  void update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) override {
    in_plugin(plugin_, "update()", [&] { own_->update(ctx, param, lr, number, grad_scale); });
  }
  void update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number) override {
    in_plugin(plugin_, "update()", [&] { own_->update_all(ctx, updates, lr, number); });
  }
  StateDict state() const override {
    return in_plugin(plugin_, "state()", [&] { return own_->state(); });
  }
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) override {
    in_plugin(plugin_, "load()", [&] { own_->load(ctx, params, state); });
  }
  int64_t state_bytes(const ParameterSpec& spec) const override {
    return in_plugin(plugin_, "state_bytes()", [&] { return own_->state_bytes(spec); });
  }

 private:
  const PluginInfo& plugin_;
  std::unique_ptr<Optimizer> own_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path) {
  const Choice<OptimizerFactory> choice = choose_optimizer(config, path);
  std::unique_ptr<Optimizer> optimizer = choice.make();
  if (!choice.plugin()) return optimizer;
  return std::make_unique<PluginOptimizer>(*choice.plugin(), std::move(optimizer));
}

Node full_optimizer_config(const Node& config, const std::string& path) {
  const Choice<OptimizerFactory> choice = choose_optimizer(config, path);
  Node full = choice.full();
  static_cast<void>(rate_of(choice));
  return full;
}

double train::learning_rate(const Node& config, const std::string& path) {
  return rate_of(choose_optimizer(config, path));
}

}  // namespace lmx
