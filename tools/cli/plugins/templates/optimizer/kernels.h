// The arithmetic of one element, written once for the CPU (@name@.cc) and for CUDA (@name@_cuda.cu).
#pragma once

#include "lmx/slot_optimizer.h"

namespace @name@_kernels {

template <class T>
struct Update {
  static constexpr const char* kName = "@name@";
  lmx::optim::Elements<T> of;
  T lr, b1, b2, decay;
  T grad = 1;  // the factor of the gradient, from clipping and the loss scale

  // lmx calls it before apply(). On a GPU the factor is computed there, and the host does not wait for it.
  LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }

  // p, its gradient, and a reference for each slot.
  LMX_HD static void apply(T& p, T gradient, T& m, const Update& c) {
    const T g = c.grad * gradient, mixed = c.b1 * m + (T(1) - c.b1) * g;
    const T sign = mixed > T(0) ? T(1) : mixed < T(0) ? T(-1) : T(0);
    p -= c.lr * (sign + c.decay * p);
    m = c.b2 * m + (T(1) - c.b2) * g;
  }
};

}  // namespace @name@_kernels
