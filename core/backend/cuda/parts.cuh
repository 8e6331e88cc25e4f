// Large sums in two kernels: blocks sum parts of the values, and a second kernel adds the parts' sums. Both orders
// depend on the sizes alone.
#pragma once

#include "backend/cuda/reduce.cuh"

namespace lmx::cuda {

constexpr int64_t kPartSize = 1 << 14;  // values of a part

// The last of `count` ranges of parts that does not begin after `part`. first(k): the first part of range k, ascending.
template <class First>
__device__ int64_t range_of(int64_t part, int64_t count, First first) {
  int64_t k = 0;
  for (int64_t end = count; end - k > 1;) {
    const int64_t middle = k + (end - k) / 2;
    (static_cast<int64_t>(first(middle)) <= part ? k : end) = middle;
  }
  return k;
}

// Launches of kernels that sum over a block: one double for each warp.
inline Grid summing_grid(int64_t blocks) {
  return {dim3(blocks_of(blocks)), dim3(kThreads), kWarpLanes * sizeof(double)};
}

// Every thread gets the sum of value(i) over [begin, end). Needs a summing_grid().
template <class Value>
__device__ double block_sum_of(int64_t begin, int64_t end, Value value) {
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) sum += value(i);
  return block_sum(sum, shared<double>());
}

// Block k: sums[k] += the sum of row k of `parts` (blocks, count).
template <class T>
__global__ void add_parts(const T* parts, int64_t count, T* sums) {
  const T* row = parts + static_cast<int64_t>(blockIdx.x) * count;
  const T sum = block_sum_of(0, count, [row](int64_t i) { return row[i]; });
  if (threadIdx.x == 0) sums[blockIdx.x] += sum;
}

}  // namespace lmx::cuda
