// Arguments of the kernels of root mean square normalisation, see rms_norm.cc. x, y and their gradients are
// (rows, cols).
#pragma once

#include "lmx/kernels.h"
#include "lmx/operand.h"

namespace lmx::ops {

template <class T>
struct RmsNormForward {
  static constexpr const char* kName = "rms_norm_forward";
  const T *x, *gain;  // gain (cols)
  T* y;
  T* scales;  // (rows) r of each row
  int64_t rows, cols;
  T eps;
  OperandTarget operand = {};  // of y
};

// dx of every row.
template <class T>
struct RmsNormBackward {
  static constexpr const char* kName = "rms_norm_backward";
  const T *x, *gain, *scales, *dy;
  T* dx;
  int64_t rows, cols;
};

// dgain (cols). Rows are added in ascending order.
template <class T>
struct RmsNormWeights {
  static constexpr const char* kName = "rms_norm_weights";
  const T *x, *scales, *dy;
  T* dgain;
  int64_t rows, cols;
};

// dx of one element; along: r^2 mean(g x).
template <class T>
LMX_HD inline T rms_norm_slope(T x, T gain, T dy, T r, T along) {
  return r * (dy * gain - x * along);
}

}  // namespace lmx::ops
