// The interface to attention in liblmx_cudnn.so: the arguments of its two kernels, which cuDNN computes, and the
// reference attention in the library of the emulated device. ops/attention/sdpa.cc calls them.
#pragma once

#include <compare>

#include "lmx/kernels.h"

namespace lmx {

// The type, sizes and strides for which cuDNN plans. Counts are rounded up, so that one plan serves similar batches.
struct SdpaShape {
  DType type;                            // of q, k, v, y and their gradients: bf16 or f16
  int64_t batch;                         // sequences; those beyond the last have no rows
  int64_t heads, kv_heads, size;         // `heads` is a multiple of `kv_heads`; size: of a head
  int64_t queries, keys;                 // at least those of the longest sequence
  int64_t q_stride, k_stride, v_stride;  // elements from a row to the next; that of y is heads * size
  bool causal;                           // query i of a sequence sees its keys [0, i]
  auto operator<=>(const SdpaShape &) const = default;
};

// The inputs of both passes: for each head, scores s = q k^T / sqrt(size), weights softmax(s), y = weights v. Offsets
// (batch + 1) are elements from an operand's pointer to the first row of each sequence, then to the end of the last.
template <class T>
struct SdpaInput {
  SdpaShape shape;
  const T *q, *k, *v;  // the first row and column of head 0; columns of a head follow each other, then the next head's
  const int64_t *q_offsets, *k_offsets, *v_offsets;
  const int64_t *y_offsets, *lse_offsets;
  const int32_t *query_counts, *key_counts;  // (batch) rows of each sequence
};

template <class T>
struct SdpaForward {
  static constexpr const char *kName = "attention_cudnn_forward";
  SdpaInput<T> in;
  T *y;        // (N, heads size)
  float *lse;  // (N, heads) the natural logarithm of each row's sum of exponentials
};

// The gradients have the strides and offsets of q, k and v. Their sums have the same order in every run.
template <class T>
struct SdpaBackward {
  static constexpr const char *kName = "attention_cudnn_backward";
  SdpaInput<T> in;
  const T *y, *dy;
  const float *lse;
  T *dq, *dk, *dv;
};

}  // namespace lmx
