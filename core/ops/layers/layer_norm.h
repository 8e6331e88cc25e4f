// Arguments of the kernels of layer normalisation, see layer_norm.cc. x, y and their gradients are (rows, cols).
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

template <class T>
struct LayerNormForward {
  static constexpr const char* kName = "layer_norm_forward";
  const T *x, *gain, *bias;  // gain, bias (cols)
  T* y;
  T* stats;  // (rows, 2) mean and r of each row
  int64_t rows, cols;
  T eps;
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
  T *dgain, *dbias;  // in: zeros
  int64_t rows, cols;
};

}  // namespace lmx::ops
