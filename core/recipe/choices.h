// Facts about the losses and optimizers that a recipe names, before objects are made from them. lmx/loss.h, lmx/optim.h
// and lmx/schedule.h declare the functions that make the objects.
#pragma once

#include <string>

#include "lmx/config.h"

namespace lmx {

// The value of a trait of the loss; "" if it does not have the trait. Errors as for make_loss().
std::string loss_trait(const Node& config, const std::string& path, const char* trait);

// The learning rate that `optimizer:` of a recipe states, that of its first rule if it has rules, before `lr_rule` and
// the schedule are applied. Errors as for
// full_optimizer_config().
double learning_rate(const Node& config, const std::string& path);

}  // namespace lmx
