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
  const S* product;
  const float* bias;  // (cols); null: none
  DropMask mask;
  const uint64_t* row_ids;  // (rows); not read if the mask drops nothing
  int64_t rows, cols;
};

// y = layer_norm(s)
template <class S>
struct ResidualNormForward {
  static constexpr const char* kName = "residual_norm";
  ResidualSum<S> sum;
  const float *gain, *bias;  // (cols)
  float* y;
  float* stats;  // (rows, 2) mean and r of each row of s
  float eps;
  OperandTarget operand = {};  // of y
};

// sums (cols) = beta * sums + the column sums of a matrix; null: they are not used. beta: 0 or 1.
struct SummedGradient {
  float* sums = nullptr;
  float beta = 0;
};

// dx = beta * dx + ds and dproduct = ds * mask; either is null if it is not used. The sums are those of dy xhat, of dy,
// and of dproduct before it is rounded to S. Rows are added in a fixed order.
template <class S>
struct ResidualNormBackward {
  static constexpr const char* kName = "residual_norm_backward";
  ResidualSum<S> sum;
  const float *gain, *stats, *dy;
  float* dx;
  float beta;  // 0 or 1
  S* dproduct;
  SummedGradient dgain, dbias, dproduct_bias;
};

}  // namespace lmx::ops
