// The arithmetic of one highway layer (Zilly et al. 2016, equations 6 to 9). It is written once, for a float that the
// CPU compiler vectorises, a double for gradient checks, and a float of a CUDA thread.
//
//   h = tanh(z_h)    t = sigmoid(z_t)    s' = h t + s c    c = 1 - t if gates are coupled, else sigmoid(z_c)
#pragma once

#include "lmx/math.h"

namespace lmx::rhn {

// Element j of a row of H units. The blocks h, t and, with free gates, c have H elements each. z: in, pre-activations
// without bias; out, activations. The constant of a free carry gate is the negative of the transform gate's, so that
// both gates start as coupled ones.
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

// z: in, activations; out, gradients of the pre-activations. ds: in, gradient of s'; out, gradient of s without the
// part through z.
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
