// Large sums in two kernels: blocks sum parts of the values, and a second kernel adds the parts' sums. Both orders
// depend on the sizes alone.
#pragma once

#include "backend/cuda/reduce.cuh"

namespace lmx::cuda {

constexpr int64_t kPartSize = 1 << 14;  // values of a part

// Launches of kernels in which each block sums at most so many values: one double for each warp. Warps without a value
// would add zeros.
inline Grid summing_grid(int64_t blocks, int64_t values) {
  const int64_t warps = (values + kWarpLanes - 1) / kWarpLanes, most = kThreads / kWarpLanes;
  const auto used = static_cast<unsigned>(warps < 1 ? 1 : warps < most ? warps : most);
  return {dim3(blocks_of(blocks)), dim3(used * kWarpLanes), kWarpLanes * sizeof(double)};
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
  wait_for_previous();
  const T* row = parts + static_cast<int64_t>(blockIdx.x) * count;
  const T sum = block_sum_of(0, count, [row](int64_t i) { return row[i]; });
  if (threadIdx.x == 0) sums[blockIdx.x] += sum;
}

}  // namespace lmx::cuda
