// Attention on the tensor cores of a CUDA device, for operands of 16 bits.
#pragma once

#include "ops/attention/attention.h"

namespace lmx::ops {

constexpr int64_t kLargestMmaHead = 128;  // columns

// Whether the functions below compute a call: a property of its shape and compute type alone.
inline bool uses_mma(const AttentionPlan& plan) {
  return (plan.compute == DType::bf16 || plan.compute == DType::f16) && plan.size <= kLargestMmaHead;
}

// REQUIRES: uses_mma(a.in.plan).
void forward_mma(Context& ctx, const AttentionForward<float>& a);
// The gradients of q, k and v. `deltas` (sequences, heads, queries): dy_i . y_i, in places beyond the last query of a
// sequence anything. REQUIRES: uses_mma(a.in.plan).
void backward_mma(Context& ctx, const AttentionBackward<float>& a, const float* deltas);

}  // namespace lmx::ops
