// Activation checkpointing for models that are composed of ops.
#pragma once

#include <functional>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"

namespace lmx {

// f(ctx, x), of whose ops nothing is kept: the backward pass calls f again, by the same ops in the same order, so
// values and gradients have the same bits as without recompute() (Chen et al. 2016, "Training Deep Nets with Sublinear
// Memory Cost").   grads: x and `parameters`, all leaves that f differentiates REQUIRES: f depends on its arguments and
// on values that do not change until the backward pass has ended.
LMX_API Var recompute(Context& ctx, const Var& x, std::vector<Var> parameters,
                      std::function<Var(Context&, const Var&)> f);

}  // namespace lmx
