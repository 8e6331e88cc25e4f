// Arguments of the kernels of attention, see attention.cc. N: rows of queries, M: rows of keys and values. The rows of
// a sequence follow each other without padding.
#pragma once

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/operand.h"
#include "ops/layers/dropout_mask.h"

namespace lmx::ops {

// The shape (sequences or 1, heads or 1, Q, K) of a bias.
struct BiasShape {
  int64_t sequences = 1, heads = 1, queries = 0, keys = 0;
  // The position of the bias of (sequence, head) for query i and the first key.
  LMX_HD int64_t at(int64_t sequence, int64_t head, int64_t i) const {
    return (((sequences > 1 ? sequence : 0) * heads + (heads > 1 ? head : 0)) * queries + i) * keys;
  }
};

// Sizes and options of one call.
struct AttentionPlan {
  int64_t sequences, heads, kv_heads, size;  // size: of a head
  int64_t queries, keys;                     // number of queries and keys of the longest sequence
  bool causal;
  DType compute;  // type to which operands of products are rounded
  double scale;   // 1 / sqrt(size)
  BiasShape bias = {};
  LMX_HD int64_t group() const { return heads / kv_heads; }  // heads of queries that use one head of keys
};

// The columns of one operand in rows of `stride` elements.
template <class T>
struct HeadColumns {
  T* data;  // the first row and column of head 0
  int64_t stride;
};

// The inputs of both passes. S: the type of the operands of products, T or one of 16 bits.
template <class T, class S = T>
struct AttentionInput {
  AttentionPlan plan;
  HeadColumns<const S> q, k, v;
  const T* bias;                           // of plan.bias's shape; null: none
  const int64_t *query_begin, *key_begin;  // (sequences + 1) sequence b has rows [begin[b], begin[b + 1])
  const DropMask* masks;                   // (heads); null: no weight is dropped
  const uint64_t* row_ids;                 // (N) rows of the masks
  // Added to the columns of each row of q, k and v, which are then rounded again; null: none. Only for S of 16 bits.
  const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr;
};

template <class T, class S = T>
struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  static constexpr bool kAllocatesOnCpu = true;
  AttentionInput<T, S> in;
  T* y;                        // (N, heads size); null: only the operand is written
  T* lse;                      // (N, heads) the logarithm of each row's sum of exponentials; Inf if all keys are hidden
  OperandTarget operand = {};  // of y
};

template <class T>
struct AttentionGradient {
  HeadColumns<T> to;           // data is null if only the operand is written
  bool add;                    // add to `to`; else its elements are not initialised
  OperandTarget operand = {};  // of the matrix whose columns begin at `column` here; none if `add`
  int64_t column = 0;
  // Whether both are the same columns.
  bool same(const AttentionGradient& other) const {
    if (to.data || other.to.data) return to.data == other.to.data;
    return operand.to == other.operand.to && column == other.column;
  }
};

template <class T, class S = T>
struct AttentionBackward {
  static constexpr const char* kName = "attention_backward";
  static constexpr bool kAllocatesOnCpu = true;
  AttentionInput<T, S> in;
  const S *y, *dy;
  const T* lse;
  AttentionGradient<T> dq, dk, dv;
  T* dbias;  // in: zeros; null if it is not needed
};

// The gradient of a score from the gradient of its weight w.
template <class T>
LMX_HD inline T score_slope(T w, T dw, T delta, T scale) {
  return w * (dw - delta) * scale;
}

}  // namespace lmx::ops
