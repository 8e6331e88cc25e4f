// Arguments of the kernels of full_softmax.cc.
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

// The losses of a block: rows [first, first + rows) of the n rows. S: T, or on a GPU also the type of operands.
template <class T, class S = T>
struct FullSoftmaxBlock {
  static constexpr const char* kName = "full_softmax_loss";
  S* z;        // (rows, words) in: h w^T; out: `factor` times the logits' gradient; unspecified if `factor` is 0
  const T* b;  // (words), or null
  const int32_t* targets;  // (n)
  const float* weights;    // (n), or null: all 1
  double *nll, *smoothed;  // (n) unweighted; smoothed: null if `smoothing` is 0
  int64_t first, rows, words;
  double factor, smoothing;

  // `sum`: of the row's logits.
  LMX_HD double smoothed_loss(double target_nll, double lse, double sum) const {
    return (1 - smoothing) * target_nll + smoothing * (lse - sum / static_cast<double>(words));
  }
  // The number that smoothing adds to the gradient of each logit, and the number that is subtracted from the target's.
  // `scale`: factor times weight.
  LMX_HD T spread_slope(double scale) const { return static_cast<T>(-scale * smoothing / static_cast<double>(words)); }
  LMX_HD T target_slope(double scale) const { return static_cast<T>(scale * (1 - smoothing)); }
};

// x (rows, cols) += b (cols)
template <class T>
struct AddBias {
  static constexpr const char* kName = "add_bias";
  T* x;
  const T* b;
  int64_t rows, cols;
};

}  // namespace lmx::ops
