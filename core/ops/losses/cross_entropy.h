// Arguments of the kernels of cross_entropy.cc. Logits z (n, words) and their gradient.
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

template <class T>
struct CrossEntropyForward {
  static constexpr const char* kName = "cross_entropy";
  const T* z;
  const int32_t* targets;  // (n)
  double *lse, *nll;       // (n) log-sum-exp of each row; unweighted
  int64_t n, words;
};

template <class T>
struct CrossEntropyBackward {
  static constexpr const char* kName = "cross_entropy";
  const T* z;
  const int32_t* targets;
  const float* weights;  // (n), or null: all 1
  const double* lse;
  const T* seed;  // (1) gradient of the loss
  T* dz;
  int64_t n, words;
};

}  // namespace lmx::ops
