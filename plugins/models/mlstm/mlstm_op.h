// A whole sequence of one multiplicative LSTM layer as one differentiable op (Krause et al. 2016):
//
//   m_t = (W_mx x_t) * (W_mh h_t-1)    z = W_x x_t + W_m m_t + b    c_t, h_t: the LSTM's, of the gates z
#pragma once

#include "lmx/ops.h"

namespace lmx::mlstm {

struct LayerWeights {
  Var w_mx;  // (H, E)
  Var w_mh;  // (H, H)
  Var w_x;   // (4H, E) gate blocks i, f, g, o
  Var w_m;   // (4H, H)
  Var bias;  // (4H)
};

struct LayerOptions {
  double forget_bias = 0;  // added to the forget gate's pre-activation
  SequenceOptions sequence;
};

// h of every step, time-major: x (T*B, E) -> (T*B, H), row t*B + b. `state`, h and c (B, H), is the state before step
// 0; it is replaced by the state after step T-1, detached from the tape.   grads: x and the weights
Var mlstm_layer(Context& ctx, const Var& x, const LayerWeights& w, std::vector<Tensor>& state,
                const LayerOptions& options);

}  // namespace lmx::mlstm
