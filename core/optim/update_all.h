// The update of many parameters at once.
#pragma once

#include <span>

#include "lmx/optim.h"

namespace lmx::optim {

struct ParameterUpdate {
  Var* param;
  double grad_scale = 1;
};

// Optimizer::update() of each parameter, with equal results. lmx's own optimizers enqueue few kernels for all of them
// on a device.
void update_all(Context& ctx, Optimizer& optimizer, std::span<const ParameterUpdate> updates, double lr,
                int64_t number);

}  // namespace lmx::optim
