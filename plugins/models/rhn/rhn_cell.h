// The arithmetic of one highway layer (Zilly et al. 2016, equations 6 to 9), written once: a float that the CPU's
// compiler vectorises, a double for gradient checks, a CUDA thread's float.
//
//   h = tanh(z_h)    t = sigmoid(z_t)    s' = h t + s c    c = 1 - t where gates are coupled, else sigmoid(z_c)
#pragma once

#include "lmx/math.h"

namespace lmx::rhn {

// Element j of a row of H units, whose blocks h, t and, with free gates, c lie H apart. z: pre-activations without bias
// in, activations out. The carry gate's constant is the opposite of the transform gate's, so that both start as
// coupled ones do.
template <bool Coupled, class T>
LMX_HD inline void forward_element(T* z, const T* bias, T s, T* next, int64_t j, int64_t n, T transform_bias) {
  const T h = fast_tanh(z[j] + bias[j]), t = fast_sigmoid(z[n + j] + bias[n + j] + transform_bias);
  T c = T(1) - t;
  if constexpr (!Coupled) {
    c = fast_sigmoid(z[2 * n + j] + bias[2 * n + j] - transform_bias);
    z[2 * n + j] = c;
  }
  z[j] = h;
  z[n + j] = t;
  next[j] = h * t + s * c;
}

// z: activations in, gradients of the pre-activations out; ds: of s' in; of s, without what passes through z, out.
template <bool Coupled, class T>
LMX_HD inline void backward_element(T* z, T s, T* ds, int64_t j, int64_t n) {
  const T h = z[j], t = z[n + j], d = ds[j];
  z[j] = d * t * (T(1) - h * h);
  if constexpr (Coupled) {
    z[n + j] = d * (h - s) * t * (T(1) - t);
    ds[j] = d * (T(1) - t);
  } else {
    const T c = z[2 * n + j];
    z[n + j] = d * h * t * (T(1) - t);
    z[2 * n + j] = d * s * c * (T(1) - c);
    ds[j] = d * c;
  }
}

}  // namespace lmx::rhn
