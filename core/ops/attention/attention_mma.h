// Attention on the tensor cores of a CUDA device, for operands of 16 bits.
#pragma once

#include "ops/attention/attention.h"

namespace lmx::ops {

constexpr int64_t kLargestMmaHead = 128;  // columns

// Whether tensor cores compute attention of heads of this size.
inline bool on_tensor_cores(const Context& ctx, int64_t size) {
  return stores_operands(ctx.device.kind, ctx.compute) && size <= kLargestMmaHead;
}

constexpr int64_t kLongestSentence = 64;  // queries, and keys

// Whether the functions for short sentences below compute a call: a property of its shape alone.
inline bool uses_sentences(const AttentionPlan& plan) {
  const bool biased = plan.bias.keys > 0;
  return plan.queries <= kLongestSentence && plan.keys <= kLongestSentence && plan.group() == 1 && !biased;
}

// Backward as well: a block writes dq, dk and dv, so no other one may add to the same elements.
template <class Half>
bool uses_sentences(const AttentionBackward<float, Half>& a) {
  return uses_sentences(a.in.plan) && !a.dq.same(a.dk) && !a.dq.same(a.dv);
}

// These functions exist for Half = bfloat16 and float16. REQUIRES: heads of at most kLargestMmaHead columns.

// REQUIRES: uses_sentences(). Backward does not read a.y.
template <class Half>
void forward_sentences(Context& ctx, const AttentionForward<float, Half>& a);
template <class Half>
void backward_sentences(Context& ctx, const AttentionBackward<float, Half>& a);

template <class Half>
void forward_mma(Context& ctx, const AttentionForward<float, Half>& a);
// The gradients of q, k and v. `deltas` (sequences, heads, queries): dy_i . y_i, in places beyond the last query of a
// sequence anything.
template <class Half>
void backward_mma(Context& ctx, const AttentionBackward<float, Half>& a, const float* deltas);

}  // namespace lmx::ops
