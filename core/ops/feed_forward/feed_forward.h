// Arguments of the kernels of a feed-forward layer, see feed_forward.cc: its units (rows, cols) in the type S of matrix
// products.
#pragma once

#include "lmx/kernels.h"
#include "lmx/operand.h"
#include "ops/layers/dropout_mask.h"

namespace lmx::ops {

// y = max(0, y + bias) * mask, in place
template <class S>
struct FeedForwardUnits {
  static constexpr const char* kName = "feed_forward_units";
  S* y;
  const float* bias;  // (cols); null: y contains it
  DropMask mask;
  const uint64_t* row_ids;  // (rows); not read if the mask drops nothing
  int64_t rows, cols;
};

// dy = dy * scale where y > 0, else 0, in place: the gradient of x up^T + bias. sums (cols) = beta * sums + its column
// sums, before it is rounded to S; rows are added in a fixed order, on the CPU in ascending order.
template <class S>
struct FeedForwardUnitsBackward {
  static constexpr const char* kName = "feed_forward_units_backward";
  const S* y;
  S* dy;
  Computed<S>* sums;
  int64_t rows, cols;
  Computed<S> scale, beta;  // beta: 0 or 1
};

}  // namespace lmx::ops
