// A whole sequence of one recurrent highway layer as one differentiable op (Zilly et al. 2016): each step
// passes the state through L highway layers, the first of which reads the input too.
//
//   s_0 = s_L of the step before    z_l = [l = 1] W x_t + R_l s_l-1 + b_l    s_l = h_l t_l + s_l-1 c_l
#pragma once

#include "lmx/ops.h"

namespace lmx::rhn {

// G: number of gate blocks: 2 for h and t, 3 with a separate carry gate c.
struct LayerWeights {
  Var w_x;                // (G H, E)
  std::vector<Var> w_s;   // L of (G H, H)
  std::vector<Var> bias;  // L of (G H)
};

struct LayerOptions {
  bool coupled = true;        // c = 1 - t
  double transform_bias = 0;  // added to the transform gate's pre-activation, subtracted from the carry gate's
  SequenceOptions sequence;
};

// s_L of every step, time-major: x (T*B, E) -> (T*B, H), row t*B + b. `state`, s (B, H), is the state before step 0; it
// is replaced by the state after step T-1, detached from the tape.   grads: x and the weights
Var rhn_layer(Context& ctx, const Var& x, const LayerWeights& w, std::vector<Tensor>& state,
              const LayerOptions& options);

}  // namespace lmx::rhn
