// A whole sequence of one LSTM layer as one differentiable op.
#pragma once

#include "lmx/ops.h"

namespace lmx::lstm {

struct LayerWeights {
  Var w_ih;  // (4H, E)
  Var w_hh;  // (4H, P), P = H without a projection
  Var bias;  // (4H)
  Var w_hr;  // (P, H), or undefined
};

struct LayerOptions {
  double forget_bias = 0;  // added to the forget gate's pre-activation
  SequenceOptions sequence;
};

// h of every step, time-major: x (T*B, E) -> (T*B, P), row t*B + b. `state`, h (B, P) and c (B, H), is the state before
// step 0; it is replaced by the state after step T-1, detached from the tape.   grads: x, w_ih, w_hh, bias, w_hr
Var lstm_layer(Context& ctx, const Var& x, const LayerWeights& w, std::vector<Tensor>& state,
               const LayerOptions& options);

}  // namespace lmx::lstm
