// The learning rate that `optimizer:` of a recipe sets.
#pragma once

#include <string>

#include "lmx/config.h"

namespace lmx {

// Before `lr_rule` and the schedule are applied. `config` and errors as for make_optimizer().
double learning_rate(const Node& config, const std::string& path);

}  // namespace lmx
