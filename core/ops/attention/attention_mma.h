// Attention on the tensor cores of a CUDA device, for operands of 16 bits.
#pragma once

#include "ops/attention/attention.h"

namespace lmx::ops {

constexpr int64_t kLargestMmaHead = 128;  // columns
constexpr int64_t kLongestSentence = 64;  // queries, and keys

// Whether the functions below compute a call: a property of its shape and compute type alone.
inline bool uses_mma(const AttentionPlan& plan) {
  return (plan.compute == DType::bf16 || plan.compute == DType::f16) && plan.size <= kLargestMmaHead;
}

// Whether the functions for short sentences below compute a call: a property of its shape and compute type alone.
inline bool uses_sentences(const AttentionPlan& plan) {
  const bool biased = plan.bias.keys > 0;
  return uses_mma(plan) && plan.queries <= kLongestSentence && plan.keys <= kLongestSentence && plan.group() == 1 &&
         !biased;
}

// Backward as well: a block writes dq, dk and dv, so no other one may add to the same elements.
inline bool uses_sentences(const AttentionBackward<float>& a) {
  return uses_sentences(a.in.plan) && a.dq.to.data != a.dk.to.data && a.dq.to.data != a.dv.to.data;
}

// REQUIRES: uses_sentences(). Backward does not read a.y.
void forward_sentences(Context& ctx, const AttentionForward<float>& a);
void backward_sentences(Context& ctx, const AttentionBackward<float>& a);

// REQUIRES: uses_mma(a.in.plan).
void forward_mma(Context& ctx, const AttentionForward<float>& a);
// The gradients of q, k and v. `deltas` (sequences, heads, queries): dy_i . y_i, in places beyond the last query of a
// sequence anything. REQUIRES: uses_mma(a.in.plan).
void backward_mma(Context& ctx, const AttentionBackward<float>& a, const float* deltas);

}  // namespace lmx::ops
