// Arguments of the kernels of a normalised residual connection, see residual_norm.cc: matrices (rows, cols), the
// product of the branch and its gradient in the type S of matrix products.
#pragma once

#include "lmx/kernels.h"
#include "lmx/operand.h"
#include "ops/layers/dropout_mask.h"

namespace lmx::ops {

// The widest rows of these kernels: a thread keeps 16 elements of a row, and a block has 256 threads.
inline constexpr int64_t kMostResidualColumns = 4096;

// s = x + (product + bias) * mask
template <class S>
struct ResidualSum {
  const float* x;
  const S* product;   // null: s = x
  const float* bias;  // (cols); null: none
  DropMask mask;
  const uint64_t* row_ids;  // (rows); not read if the mask drops nothing
  int64_t rows, cols;
};

// y = norm(s): layer normalisation, or, for `rms`, root mean square normalisation.
template <class S>
struct ResidualNormForward {
  static constexpr const char* kName = "residual_norm";
  ResidualSum<S> sum;
  bool rms;
  const float *gain, *bias;  // (cols); null: none. No gain: there is no norm
  float *s, *y;              // null: not stored
  float* stats;              // (rows, 2) mean and r of each row of s
  float eps;
  OperandTarget operand = {};  // of y, in the type S
};

// sums (cols) = beta * sums + the column sums of a matrix; null: they are not used. beta: 0 or 1.
struct SummedGradient {
  float* sums = nullptr;
  float beta = 0;
};

// The gradient of s is ds plus that of the norm. dx = beta * dx + this sum, and dproduct = this sum * mask; either is
// null if it is not used. The sums are those of dy xhat, of dy, and of dproduct before it is rounded to S. Rows are
// added in a fixed order.
template <class S>
struct ResidualNormBackward {
  static constexpr const char* kName = "residual_norm_backward";
  static constexpr bool kAllocatesOnCpu = true;
  ResidualSum<S> sum;
  const float* s;  // null: it is computed again
  bool rms;
  const float *gain, *stats;
  const float* dy;      // the gradient of the norm, if its type is f32
  const S* rounded_dy;  // the same, if it is S; no gradient reached the norm if both are null
  const float* ds;      // the gradient of s as a result; null: 0
  float* dx;
  float beta;  // 0 or 1
  S* dproduct;
  SummedGradient dgain, dbias, dproduct_bias;
};

}  // namespace lmx::ops
