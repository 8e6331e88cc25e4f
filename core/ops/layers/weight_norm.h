// Arguments of the kernels of weight normalisation, see weight_norm.cc. v, w and their gradients are (rows, cols).
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

template <class T>
struct WeightNormForward {
  static constexpr const char* kName = "weight_norm_forward";
  const T *v, *g;  // g (rows)
  T* w;
  double* norms;  // (rows) |v| of each row
  int64_t rows, cols;
};

template <class T>
struct WeightNormBackward {
  static constexpr const char* kName = "weight_norm_backward";
  const T *v, *g, *dw;
  const double* norms;
  T *dv, *dg;  // dg (rows)
  int64_t rows, cols;
};

// g / n. The direction of a zero row is undefined, so w and its gradients are 0.
template <class T>
LMX_HD inline T weight_norm_factor(T g, double norm) {
  return norm > 0 ? static_cast<T>(static_cast<double>(g) / norm) : T(0);
}
// dv of one element.
template <class T>
LMX_HD inline T weight_norm_slope(T v, T dw, T factor, T along) {
  return factor * (dw - along * v);
}

}  // namespace lmx::ops
