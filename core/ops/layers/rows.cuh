// Kernels that process whole rows: a warp for each narrow row, a block for each wide one. A row that fits into shared
// memory is read from the device's memory once.
#pragma once

#include "backend/cuda/reduce.cuh"

namespace lmx::ops {

constexpr int64_t kNarrow = 128;         // columns of a row that gets a warp
constexpr int kScratch = 256;            // bytes of shared memory for sums over the block
constexpr size_t kKeptBytes = 32 << 10;  // of rows in shared memory; more would leave too few blocks on a processor

// A row of x. The thread that loads an element is the one that reads it again, so no barrier is needed.
template <class T>
struct KeptRow {
  const T* x;
  T* kept;  // null: the row does not fit
  __device__ T load(int64_t i) const {
    const T value = x[i];
    if (kept) kept[i] = value;
    return value;
  }
  __device__ T again(int64_t i) const { return kept ? kept[i] : x[i]; }
};

// The threads of one row. A thread has the columns begin(), begin() + step(), ...
template <bool Warp>
struct RowThreads {
  unsigned char *scratch, *memory;  // memory: of the rows that are kept; null: they do not fit
  __device__ int64_t begin() const { return Warp ? threadIdx.x % cuda::kWarpLanes : threadIdx.x; }
  __device__ int64_t step() const { return Warp ? cuda::kWarpLanes : blockDim.x; }
  template <class T>
  __device__ T sum(T value) const {
    if constexpr (Warp)
      return cuda::warp_reduce(value, cuda::AddValues{});
    else
      return cuda::block_sum(value, reinterpret_cast<T*>(scratch));
  }
  // Row `index` of those that a job keeps.
  template <class T>
  __device__ KeptRow<T> keep(const T* x, int64_t cols, int index = 0) const {
    return {x, memory ? reinterpret_cast<T*>(memory) + index * cols : nullptr};
  }
};

template <bool Warp, class Job>
__global__ void row_kernel(Job job, size_t bytes) {
  cuda::wait_for_previous();
  const unsigned warp = threadIdx.x / cuda::kWarpLanes, warps = blockDim.x / cuda::kWarpLanes;
  const int64_t row = Warp ? static_cast<int64_t>(blockIdx.x) * warps + warp : blockIdx.x;
  if (row >= job.a.rows) return;
  unsigned char* memory = cuda::shared<unsigned char>();
  job(RowThreads<Warp>{memory, bytes ? memory + kScratch + (Warp ? warp * bytes : 0) : nullptr}, row);
}

// Runs job(threads, row) for each row of job.a. Job::kKept: how many rows of job.a.cols elements it keeps.
template <class T, class Job>
void launch_rows(const Context& ctx, const Job& job) {
  const auto& a = job.a;
  if (a.rows == 0) return;
  const auto wanted = static_cast<size_t>(Job::kKept * a.cols) * sizeof(T);
  const bool warp = a.cols <= kNarrow;
  if (warp) {
    constexpr int64_t kWarps = 4;
    const cuda::Grid grid{cuda::blocks_of((a.rows + kWarps - 1) / kWarps), kWarps * cuda::kWarpLanes,
                          kScratch + kWarps * wanted};
    return cuda::launch(ctx, a.kName, grid, row_kernel<true, Job>, job, wanted);
  }
  const size_t bytes = wanted <= kKeptBytes ? wanted : 0;
  cuda::launch(ctx, a.kName, {cuda::blocks_of(a.rows), cuda::kThreads, kScratch + bytes}, row_kernel<false, Job>, job,
               bytes);
}

}  // namespace lmx::ops
