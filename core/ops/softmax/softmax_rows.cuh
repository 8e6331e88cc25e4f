// Kernels over the rows of a matrix, and the sum of exponentials of a row. A warp computes a narrow row, a block a wide
// one. Neighbouring threads take neighbouring columns.
#pragma once

#include <limits>

#include "backend/cuda/reduce.cuh"
#include "lmx/math.h"

namespace lmx::ops {

// Constants, because kernels cannot call functions of the host.
template <class T>
inline constexpr T kLowest = std::numeric_limits<T>::lowest();
template <class T>
inline constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

// The threads that compute one row.
struct WarpOfRow {
  static constexpr int kMostThreads = 256;
  __device__ int64_t row() const {
    return static_cast<int64_t>(blockIdx.x) * (kMostThreads / cuda::kWarpLanes) + threadIdx.x / cuda::kWarpLanes;
  }
  __device__ int64_t first() const { return threadIdx.x % cuda::kWarpLanes; }
  __device__ int64_t count() const { return cuda::kWarpLanes; }
  template <class Combine>
  __device__ double reduce(double value, double, Combine combine) const {
    const double result = cuda::warp_reduce(value, combine);
    __syncwarp();  // as the barriers of a block's reduction: what was read before this may now be replaced
    return result;
  }
};
template <class T>
struct BlockOfRow {
  static constexpr int kMostThreads = sizeof(T) > 4 ? 512 : 1024;  // so that a thread has registers for its values
  __device__ int64_t row() const { return blockIdx.x; }
  __device__ int64_t first() const { return threadIdx.x; }
  __device__ int64_t count() const { return blockDim.x; }
  template <class Combine>
  __device__ double reduce(double value, double neutral, Combine combine) const {
    return cuda::block_reduce(value, neutral, cuda::shared<double>(), combine);
  }
};

template <class Team>
__device__ double sum_over(const Team& team, double value) {
  return team.reduce(value, 0.0, cuda::AddValues{});
}

// Without the second bound the compiler may spill registers to let more blocks share a processor.
template <class Team, class Row>
__global__ void __launch_bounds__(Team::kMostThreads, 1) row_kernel(int64_t rows, Row compute) {
  cuda::wait_for_previous();
  const Team team;
  if (team.row() < rows) compute(team, team.row());
}

// Calls compute(team, row) for every row. Row: a struct of sizes and device pointers, whose last template parameter is
// the element type, with
//   template <class Team> __device__ void operator()(const Team& team, int64_t row) const
//
// A row that is read a second time should still be in the L2 cache. With 1024 threads a row, few enough rows are in
// work at once for that: 264 rows of 32,000 logits are 34 MB.
template <class Row>
void launch_rows(const Context& ctx, const char* op, int64_t rows, int64_t cols, const Row& compute) {
  using Block = BlockOfRow<Element<Row>>;
  constexpr int64_t kNarrow = 512, kWide = 4096, kRowsOfBlock = WarpOfRow::kMostThreads / cuda::kWarpLanes;
  if (rows == 0) return;
  if (cols <= kNarrow) {
    const cuda::Grid grid{cuda::blocks_of((rows + kRowsOfBlock - 1) / kRowsOfBlock), WarpOfRow::kMostThreads};
    return cuda::launch(ctx, op, grid, row_kernel<WarpOfRow, Row>, rows, compute);
  }
  const unsigned threads = cols < kWide ? cuda::kThreads : Block::kMostThreads;
  const cuda::Grid grid{cuda::blocks_of(rows), threads, cuda::kWarpLanes * sizeof(double)};
  cuda::launch(ctx, op, grid, row_kernel<Block, Row>, rows, compute);
}

template <class T>
struct ExpSum {
  T most;      // the largest value
  double sum;  // of exp(value - most)
  __device__ double log() const { return static_cast<double>(most) + fast_log(sum); }
};

// Over n values, a multiple of N: load(j, x) puts the N values from number j on into x. Each value is read once: a
// thread scales its sum when its maximum grows. A value that is NaN or +Inf makes the sum NaN.
template <class T, int N, class Team, class Load>
__device__ ExpSum<T> exp_sum_of(const Team& team, int64_t n, Load load) {
  constexpr int kAtOnce = N == 1 ? 4 : 2;  // loads that do not wait for each other
  T most = kLowest<T>, sum = 0;
  for (int64_t begin = team.first() * N; begin < n; begin += kAtOnce * N * team.count()) {
    T x[kAtOnce][N], largest = most;
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t j = begin + k * N * team.count();
      for (T& value : x[k]) value = kMinusInfinity<T>;
      if (j < n) load(j, x[k]);
      for (const T value : x[k]) largest = value > largest ? value : largest;
    }
    sum *= fast_exp(most - largest);
    for (int k = 0; k < kAtOnce; ++k)
      for (const T value : x[k]) sum += fast_exp(value - largest);
    most = largest;
  }
  const auto of_row =
      static_cast<T>(team.reduce(static_cast<double>(most), static_cast<double>(kLowest<T>), cuda::LargerValue{}));
  return {of_row, sum_over(team, static_cast<double>(sum * fast_exp(most - of_row)))};
}

// Over value(0) ... value(n - 1).
template <class T, class Team, class Value>
__device__ ExpSum<T> exp_sum(const Team& team, int64_t n, Value value) {
  return exp_sum_of<T, 1>(team, n, [&](int64_t j, T(&x)[1]) { x[0] = value(j); });
}

}  // namespace lmx::ops
