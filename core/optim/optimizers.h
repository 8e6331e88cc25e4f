// The optimizers that are built into lmx.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/slot_optimizer.h"
#include "nn/component.h"
#include "optim/update.h"

namespace lmx::optim {

using Entry = component::Entry<OptimizerFactory>;
// All optimizers that are built in.
const std::vector<Entry>& entries();

// UserError at `betas` of a config: not two numbers below 1.
void check_betas(const std::vector<double>& betas, const Node& config, const std::string& path);

// The common part of the configs of optimizers, which have the member `lr`, and perhaps `betas`.
template <class Self>
struct OptimizerConfig {
  Traits traits() const { return {{trait::kLearningRate, trait_value(static_cast<const Self&>(*this).lr)}}; }
  static Self read(const Node& config, const std::string& path) {
    auto c = read_config<Self>(config, path);
    if constexpr (requires { c.betas; }) check_betas(c.betas, config, path);
    return c;
  }
};

// The entry of Kind, whose constructor takes a Config.
template <class Kind, class Config>
Entry entry_of(const char* name) {
  return component::entry<Config, OptimizerFactory>(name, [](const Node& config, const std::string& path) {
    return std::unique_ptr<Optimizer>(std::make_unique<Kind>(Config::read(config, path)));
  });
}

Entry sgd();
Entry adagrad();
Entry adam();
Entry adamw();
Entry muon();
Entry lion();
Entry lamb();
Entry lars();
Entry adafactor();
Entry schedule_free();

}  // namespace lmx::optim
