// A whole sequence of one LSTM layer as one differentiable op.
#pragma once

#include "lmx/autograd.h"
#include "lmx/context.h"

namespace lmx::lstm {

struct LayerWeights {
  Var w_ih;  // (4H, E)
  Var w_hh;  // (4H, P), P = H without a projection
  Var bias;  // (4H)
  Var w_hr;  // (P, H), or undefined
};

struct LayerState {
  Tensor h;  // (B, P)
  Tensor c;  // (B, H)
};

// h of every step, time-major: x (T*B, E) -> (T*B, P), row t*B + b. `state` comes in as it stood before step 0 and
// leaves as after step T-1, detached.   grads: x, w_ih, w_hh, bias, w_hr
Var lstm_layer(Context& ctx, const Var& x, const LayerWeights& w, LayerState& state, double forget_bias);

}  // namespace lmx::lstm
