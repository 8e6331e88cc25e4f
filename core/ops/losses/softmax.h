// Arguments of the kernels of softmax and log_softmax over the last dimension, see softmax.cc. x, y and their gradients
// are (rows, cols).
#pragma once

#include "lmx/kernels.h"

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

}  // namespace lmx::ops
