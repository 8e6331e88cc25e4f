// Small kernels with one error each, and correct twins, for the tests of the emulator.
#pragma once

#include "include/cuda_runtime.h"

namespace cuda_emulator::testing_kernels {

template <class T>
T* shared() {
  return static_cast<T*>(place.shared);
}

// y_i = a x_i + y_i
__global__ inline void axpy(int64_t n, float a, const float* x, float* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

// y = softmax(x) of each row; one block a row. `barrier` false: the barrier after the sum is missing.
__global__ inline void softmax_rows(int width, const float* x, float* y, bool barrier) {
  float* values = shared<float>();
  const float* from = x + static_cast<int64_t>(blockIdx.x) * width;
  const unsigned t = threadIdx.x;
  values[t] = std::exp(from[t]);
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    const float other = t < half ? values[t + half] : 0;
    __syncthreads();
    if (t < half) values[t] += other;
    if (barrier || half > 1) __syncthreads();
  }
  y[static_cast<int64_t>(blockIdx.x) * width + t] = std::exp(from[t]) / values[0];
}

// The sum of each warp's lanes by shuffles, in lane 0.
__global__ inline void warp_sums(const float* x, float* sums) {
  float v = x[threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_down_sync(0xffffffffu, v, static_cast<unsigned>(lanes));
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
}

// Seven bytes of padding follow the flag.
struct Padded {
  int64_t n;
  bool flag;
};
__global__ inline void get_padded(Padded) {}

// Four bytes of padding at the end.
struct Table {
  int64_t entries[52][9];
  uint32_t firsts[52];
  int32_t count;
};
__global__ inline void sum_table(Table table, int64_t* sum) {
  *sum = 0;
  for (const auto& entry : table.entries)
    for (const int64_t value : entry) *sum += value;
}

__global__ inline void half_meet_barrier() {
  if (threadIdx.x < blockDim.x / 2) __syncthreads();
}

__global__ inline void half_wait() {
  if (threadIdx.x < blockDim.x / 2) cudaGridDependencySynchronize();
}

__global__ inline void beyond_shared() {
  shared<int>()[blockDim.x] = 1;
}

__global__ inline void beyond_allocation(int64_t n, float* x) {
  x[n] = 1;
}

__global__ inline void load_vector(const float* x, float* y) {
  const float4 v = *reinterpret_cast<const float4*>(x);
  *y = v.x + v.w;
}

__global__ inline void set_one(float* x, float value) {
  *x = value;
}

__global__ inline void count_votes(unsigned* votes, int* total) {
  const unsigned ballot = __ballot_sync(0xffffffffu, threadIdx.x % 3 == 0);
  if (threadIdx.x % 32 == 0) votes[threadIdx.x / 32] = ballot;
  const int count = __syncthreads_count(threadIdx.x % 5 == 0);
  if (threadIdx.x == 0) *total = count;
}

}  // namespace cuda_emulator::testing_kernels
