// Sums over the threads of a block, in an order that depends on the number of threads alone, so that a sum has the same
// bits in every run.
#pragma once

#include "lmx/cuda_launch.cuh"

namespace lmx::cuda {

constexpr int kWarpLanes = 32;

struct AddValues {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct LargerValue {  // NaN wins
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

// Every lane gets the result of its group of Lanes neighbouring lanes. REQUIRES: every lane of the warp calls this.
template <int Lanes = kWarpLanes, class T, class Combine>
__device__ T warp_reduce(T value, Combine combine) {
  for (int lanes = Lanes / 2; lanes > 0; lanes /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  return value;
}

// Every thread gets the result. `scratch`: shared memory for kWarpLanes values. REQUIRES: blockDim.x is a multiple of
// kWarpLanes, and every thread of the block calls this.
template <class T, class Combine>
__device__ T block_reduce(T value, T neutral, T* scratch, Combine combine) {
  const unsigned lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
  value = warp_reduce(value, combine);
  __syncthreads();  // the scratch memory may still be read by the reduction before this one
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / kWarpLanes ? scratch[lane] : neutral;
  return warp_reduce(value, combine);
}

template <class T>
__device__ T block_sum(T value, T* scratch) {
  return block_reduce(value, T(0), scratch, AddValues{});
}

}  // namespace lmx::cuda
