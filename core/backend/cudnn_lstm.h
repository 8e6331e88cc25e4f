// An LSTM layer that cuDNN computes: a second opinion on lmx's own layer (plugins/models/lstm), for tests and
// measurements. Training does not use it.
#pragma once

#include <memory>

#include "lmx/context.h"
#include "lmx/tensor.h"

namespace lmx {

struct LstmShape {
  DType type;                                  // of all tensors: f32 or f16
  int64_t steps, batch, input, cells, output;  // T, B, E, H, P; P = H without a projection
  double forget_bias = 0;                      // added to the forget gate's pre-activation
};

// Rows of gates are blocks in the order i, f, g, o. Also their gradients.
struct LstmParameters {
  Tensor w_ih;  // (4H, E)
  Tensor w_hh;  // (4H, P)
  Tensor bias;  // (4H)
  Tensor w_hr;  // (P, H), undefined without a projection
};

struct LstmState {
  Tensor h;  // (B, P)
  Tensor c;  // (B, H)
};

// Tensors are in the memory of the context's device. RunError: cuDNN's error.
class CudnnLstm {
 public:
  virtual ~CudnnLstm() = default;
  virtual void set_parameters(Context& ctx, const LstmParameters& w) = 0;
  // x (T*B, E), row t*B + b: h of every step (T*B, P). `state`, before the first step, is replaced by that after the
  // last.
  virtual Tensor forward(Context& ctx, const Tensor& x, LstmState& state) = 0;
  struct Gradients {
    Tensor x;
    LstmParameters w;
  };
  // The gradients of the last forward() for a loss that does not depend on the last state. dy (T*B, P).
  virtual Gradients backward(Context& ctx, const Tensor& dy) = 0;
};

}  // namespace lmx
