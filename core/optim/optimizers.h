// The optimizers that are built into lmx.
#pragma once

#include <string>
#include <vector>

#include "lmx/slot_optimizer.h"
#include "nn/component.h"
#include "optim/update.h"

namespace lmx::optim {

using Entry = component::Entry<OptimizerFactory>;
// All optimizers that are built in.
const std::vector<Entry>& entries();

// Config: a config of an optimizer, with the member `lr`.
template <class Config>
Traits traits_of(const Config& config) {
  return {{trait::kLearningRate, trait_value(config.lr)}};
}

// UserError at `betas` of a config: not two numbers below 1.
void check_betas(const std::vector<double>& betas, const Node& config, const std::string& path);

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
