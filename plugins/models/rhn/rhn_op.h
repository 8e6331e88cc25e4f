// A whole sequence of one recurrent highway layer as one differentiable op (Zilly et al. 2016; FACTS A1.8): each step
// passes the state through L highway layers, the first of which reads the input too.
//
//   s_0 = s_L of the step before    z_l = [l = 1] W x_t + R_l s_l-1 + b_l    s_l = h_l t_l + s_l-1 c_l
#pragma once

#include "lmx/sequence.h"

namespace lmx::rhn {

// G: 2 blocks of gates h, t; 3 with a carry gate c of its own.
struct LayerWeights {
  Var w_x;                // (G H, E)
  std::vector<Var> w_s;   // L of (G H, H)
  std::vector<Var> bias;  // L of (G H)
};

struct LayerOptions {
  bool coupled = true;        // c = 1 - t
  double transform_bias = 0;  // added to the transform gate's pre-activation, taken from the carry gate's
  SequenceOptions sequence;
};

// s_L of every step, time-major: x (T*B, E) -> (T*B, H), row t*B + b. `s` (B, H) comes in as it stood before step 0 and
// leaves as after step T-1, detached.   grads: x and the weights
Var rhn_layer(Context& ctx, const Var& x, const LayerWeights& w, Tensor& s, const LayerOptions& options);

}  // namespace lmx::rhn
