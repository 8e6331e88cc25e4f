// Arguments of the kernels of sampled_softmax.cc. h and dh are (n, width), w (words, width).
#pragma once

#include "lmx/kernels.h"
#include "lmx/math.h"

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
  LMX_HD T value(int64_t s) const {
    const T bias = b ? b[ids[s]] : T(0);
    return log_expected ? bias - static_cast<T>(log_expected[s]) : bias;
  }
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

template <class T>
struct SampledLoss {
  double nll;  // unweighted
  T g;
};
// The gradient of a target's logit. `most`, `sum`: the largest logit of its row, and the sum of exp(logit - most).
template <class T>
LMX_HD inline SampledLoss<T> sampled_loss(T logit, T most, T sum, T weight) {
  return {static_cast<double>(most - logit) + fast_log(static_cast<double>(sum)),
          weight * (fast_exp(logit - most) / sum - T(1))};
}

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
