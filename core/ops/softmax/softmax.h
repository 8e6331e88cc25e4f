// Arguments of the kernels of softmax and log_softmax over the last dimension, see softmax.cc. x, y and their gradients
// are (rows, cols).
#pragma once

#include "lmx/kernels.h"
#include "lmx/math.h"

namespace lmx::ops {

template <class T>
struct SoftmaxForward {
  static constexpr const char* kName = "softmax";
  const T* x;
  T* y;
  int64_t rows, cols;
  bool logarithm;  // log_softmax
};

template <class T>
struct SoftmaxBackward {
  static constexpr const char* kName = "softmax";
  const T *y, *dy;
  T* dx;
  int64_t rows, cols;
  bool logarithm;
};

// Elements of the gradient of x. `delta`: the sum of y dy; `sum`: the sum of dy.
template <class T>
LMX_HD inline T softmax_slope(T y, T dy, T delta) {
  return y * (dy - delta);
}
template <class T>
LMX_HD inline T log_softmax_slope(T y, T dy, T sum) {
  return dy - fast_exp(y) * sum;
}

}  // namespace lmx::ops
