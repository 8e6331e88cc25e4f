// Arguments of the kernels of sampled_softmax.cc. h and dh are (n, width), w (words, width).
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

// offset = b - log E of the candidates.
template <class T>
struct SampledSoftmaxOffsets {
  static constexpr const char* kName = "sampled_softmax_loss";
  const int32_t* ids;         // (samples)
  const T* b;                 // (words), or null
  const float* log_expected;  // (samples), or null: no correction
  T* offset;                  // (samples)
  int64_t samples;
};

template <class T>
struct SampledSoftmaxForward {
  static constexpr const char* kName = "sampled_softmax_loss";
  const T *h, *w, *b;                          // b (words), or null
  const int32_t *targets, *ids;                // (n), (samples)
  const float *weights, *target_log_expected;  // (n), or null: all 1, no correction
  const T* offset;                             // (samples)
  T* p;                                        // (n, samples) in: the products; out: p if `gradient`
  T* g;                                        // (n)
  double* nll;                                 // (n) weighted
  int64_t n, width, samples;
  bool remove_hits, gradient;
};

// The gradients through the targets' own logits: dh_i += g_i w_t(i), dw_i = g_i h_i.
template <class T>
struct SampledSoftmaxTargets {
  static constexpr const char* kName = "sampled_softmax_loss";
  const T *g, *h, *w;
  const int32_t* targets;
  T *dh, *dw;  // dw (n, width); null where the gradient is not needed
  int64_t n, width;
};

}  // namespace lmx::ops
