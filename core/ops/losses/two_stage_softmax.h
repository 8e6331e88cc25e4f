// Arguments of the kernel of two_stage_softmax.cc.
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

// The losses of a block: rows [first, first + rows) of the n rows. The first `trained` of the words are V_all.
template <class T>
struct TwoStageBlock {
  static constexpr const char* kName = "two_stage_softmax_loss";
  T* z;                   // (rows, words) in: the products; out: `all`, or unspecified
  const T* b;             // (words), or null
  const int64_t* places;  // (n) the position of each target in V_all
  const float* weights;   // (n), or null: all 1
  double* nll;            // (n) unweighted
  T* all;                 // (rows, trained) `factor` times d over V_all; z itself if `trained` is `words`
  T* others;              // (rows, words - trained) the same over the other words; null if it is not needed
  int64_t first, rows, words, trained;
  double factor;  // 0: no gradients, `all` is null
};

}  // namespace lmx::ops
