// Kernels that multiply the elements of a matrix by a mask of dropout (dropout_mask.h).
//
// A job is a struct with the members
//
//   using Value = ...;                       // float or double
//   Args a;                                  // has mask, row_ids, rows and cols
//   bool aligned() const;                    // a function of the host, as for launch_quads()
//   __device__ void load(int64_t at, int64_t column, Value (&x)[N]) const;    // template <int N>: N = 1 or kQuad
//   __device__ void store(int64_t at, const Value (&y)[N]) const;             // elements that begin with number `at`
//
// A mask that drops nothing needs no row ids, and no random words are computed for it.
#pragma once

#include "backend/cuda/unroll.cuh"
#include "lmx/quads.cuh"
#include "ops/layers/dropout_mask.h"

namespace lmx::ops {

constexpr int kMaskLanes = kMaskColumns / 4;  // blocks of random words of a group of columns

// The words of a block of row `row`, or zeros, which drop nothing, if the mask drops nothing.
template <class Args>
__device__ MaskWords words_of(const Args& a, int64_t row, int64_t block) {
  if (a.mask.threshold == 0) return {};
  return mask_words(a.mask.key, a.row_ids[row], static_cast<uint32_t>(block));
}

// The four columns of a row that share a block of random words.
template <class Job>
struct MaskedBlock {
  Job job;
  int64_t blocks;  // of a row
  __device__ void operator()(int64_t i) const {
    using T = typename Job::Value;
    const auto& a = job.a;
    const auto [row, block] = cuda::position_of(i, blocks);
    const MaskWords words = words_of(a, row, block);
    const T scale = static_cast<T>(a.mask.keep_scale);
    int64_t column = block / kMaskLanes * kMaskColumns + block % kMaskLanes;
    for (int w = 0; w < 4; ++w, column += kMaskLanes) {
      if (column >= a.cols) continue;
      T x[1];
      job.load(row * a.cols + column, column, x);
      x[0] *= mask_factor(words.word[w], a.mask.threshold, scale);
      job.store(row * a.cols + column, x);
    }
  }
};

// The same for four neighbouring blocks: sixteen columns, in four quads.
template <class Job>
struct MaskedQuads {
  Job job;
  int64_t quads;  // of blocks of a row
  __device__ void operator()(int64_t i) const {
    using T = typename Job::Value;
    const auto& a = job.a;
    const auto [row, quad] = cuda::position_of(i, quads);
    const int64_t block = quad * cuda::kQuad, column = block / kMaskLanes * kMaskColumns + block % kMaskLanes;
    const int64_t at = row * a.cols + column;
    const T scale = static_cast<T>(a.mask.keep_scale);
    T x[4][cuda::kQuad];
    LMX_UNROLL
    for (int w = 0; w < 4; ++w) job.load(at + w * kMaskLanes, column + w * kMaskLanes, x[w]);
    LMX_UNROLL
    for (int e = 0; e < cuda::kQuad; ++e) {
      const MaskWords words = words_of(a, row, block + e);
      LMX_UNROLL
      for (int w = 0; w < 4; ++w) x[w][e] *= mask_factor(words.word[w], a.mask.threshold, scale);
    }
    LMX_UNROLL
    for (int w = 0; w < 4; ++w) job.store(at + w * kMaskLanes, x[w]);
  }
};

// Calls job.load(), multiplies by the mask, and calls job.store() for all elements of the matrix of job.a.
template <class Job>
void launch_masked(const Context& ctx, const Job& job) {
  const auto& a = job.a;
  if (a.cols % kMaskColumns == 0 && job.aligned()) {
    const int64_t quads = a.cols / (cuda::kQuad * cuda::kQuad);
    return launch_each(ctx, a.kName, a.rows * quads, MaskedQuads<Job>{job, quads});
  }
  const int64_t blocks = (a.cols + kMaskColumns - 1) / kMaskColumns * kMaskLanes;
  launch_each(ctx, a.kName, a.rows * blocks, MaskedBlock<Job>{job, blocks});
}

}  // namespace lmx::ops
