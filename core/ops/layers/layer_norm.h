// Arguments of the kernels of layer normalisation, see layer_norm.cc. x, y and their gradients are (rows, cols).
#pragma once

#include "lmx/kernels.h"
#include "lmx/operand.h"

namespace lmx::ops {

template <class T>
struct LayerNormForward {
  static constexpr const char* kName = "layer_norm_forward";
  const T *x, *gain, *bias;  // gain, bias (cols)
  T* y;
  T* stats;  // (rows, 2) mean and r of each row
  int64_t rows, cols;
  T eps;
  OperandTarget operand = {};  // of y
};

// dx of every row.
template <class T>
struct LayerNormBackward {
  static constexpr const char* kName = "layer_norm_backward";
  const T *x, *gain, *stats, *dy;
  T* dx;
  int64_t rows, cols;
};

// dgain and dbias (cols). Rows are added in ascending order.
template <class T>
struct LayerNormWeights {
  static constexpr const char* kName = "layer_norm_weights";
  const T *x, *stats, *dy;
  T *dgain, *dbias;
  int64_t rows, cols;
};

// The mean of a row, and r = 1 / sqrt(var + eps).
template <class T>
struct RowStats {
  T mean, r;
};
// Those of a row x (n) on the CPU. `rms`: the mean is taken to be 0, as in root mean square normalisation.
RowStats<float> row_stats(const float* x, bool rms, float eps, int64_t n);
// y of one element.
template <class T>
LMX_HD inline T layer_norm_value(T x, T gain, T bias, RowStats<T> s) {
  return (x - s.mean) * s.r * gain + bias;
}
// dx of one element, from the row's means of g and of g xhat.
template <class T>
LMX_HD inline T layer_norm_slope(T x, T gain, T dy, RowStats<T> s, T mean_g, T mean_gx) {
  return s.r * (dy * gain - mean_g - (x - s.mean) * s.r * mean_gx);
}
// The summand of one element in dgain.
template <class T>
LMX_HD inline T layer_norm_gain(T x, T dy, RowStats<T> s) {
  return dy * ((x - s.mean) * s.r);
}

}  // namespace lmx::ops
