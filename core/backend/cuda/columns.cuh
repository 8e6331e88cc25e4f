// Sums of the columns of a matrix over its rows: blocks sum the columns of some rows, and a second kernel adds these
// parts. Both orders depend on the sizes alone.
#pragma once

#include <type_traits>

#include "backend/cuda/reduce.cuh"
#include "backend/cuda/unroll.cuh"
#include "lmx/context.h"
#include "lmx/quads.cuh"

namespace lmx::cuda {

constexpr int kRowThreads = kThreads / kWarpLanes;  // threads of a block that share a column
constexpr int64_t kRowsOfPart = 8 * kRowThreads;    // few, so that there are many blocks

// The sums of N numbers that belong to each element of a matrix.
template <class T, int N>
struct ColumnParts {
  T* parts;  // (N, count, cols)
  int64_t rows, cols, count;
};

// A block sums 32 groups of Columns columns over kRowsOfPart rows. values.add<Columns>(row, column, sums) adds the N
// numbers of each of Columns neighbouring elements to `sums`.
template <int Columns, class T, int N, class Values>
__global__ void sum_column_parts(ColumnParts<T, N> a, Values values) {
  wait_for_previous();
  constexpr int kWide = kWarpLanes * Columns;
  T* shared_sums = shared<T>();  // (N, kRowThreads, kWide)
  const int64_t across = (a.cols + kWide - 1) / kWide, part = blockIdx.x / across;
  const int64_t first_column = blockIdx.x % across * kWide;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes, first = static_cast<int>(threadIdx.x) / kWarpLanes;
  const int64_t column = first_column + lane * Columns;
  const int64_t begin = part * kRowsOfPart, end = begin + kRowsOfPart < a.rows ? begin + kRowsOfPart : a.rows;
  T sums[N][Columns]{};
  if (column < a.cols) {
    LMX_UNROLL_BY(8)  // so that several loads are on their way
    for (int64_t r = begin + first; r < end; r += kRowThreads) values.template add<Columns>(r, column, sums);
  }
  LMX_UNROLL
  for (int n = 0; n < N; ++n) {
    LMX_UNROLL
    for (int c = 0; c < Columns; ++c) shared_sums[(n * kRowThreads + first) * kWide + lane * Columns + c] = sums[n][c];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < N * kWide; i += kThreads) {
    const int n = i / kWide, c = i % kWide;
    if (first_column + c >= a.cols) continue;
    T sum = 0;
    for (int p = 0; p < kRowThreads; ++p) sum += shared_sums[(n * kRowThreads + p) * kWide + c];
    a.parts[(n * a.count + part) * a.cols + first_column + c] = sum;
  }
}

// A block adds the parts of one number of 32 columns, and calls put().
template <class T, int N, class Put>
__global__ void put_column_sums(ColumnParts<T, N> a, Put put) {
  wait_for_previous();
  T* shared_sums = shared<T>();  // (kRowThreads, 32)
  const int64_t across = (a.cols + kWarpLanes - 1) / kWarpLanes, n = blockIdx.x / across;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes, first = static_cast<int>(threadIdx.x) / kWarpLanes;
  const int64_t column = blockIdx.x % across * kWarpLanes + lane;
  T sum = 0;
  if (column < a.cols) {
    LMX_UNROLL_BY(8)
    for (int64_t p = first; p < a.count; p += kRowThreads) sum += a.parts[(n * a.count + p) * a.cols + column];
  }
  shared_sums[first * kWarpLanes + lane] = sum;
  __syncthreads();
  if (first != 0 || column >= a.cols) return;
  for (int p = 1; p < kRowThreads; ++p) sum += shared_sums[p * kWarpLanes + lane];
  put(n, column, sum);
}

// A matrix whose columns are summed.
struct SummedMatrix {
  int64_t rows, cols;
  bool aligned;  // quads can begin at multiples of kQuad in it, if its columns are a multiple of kQuad
};

// Puts the sums of number n into row n of sums (N, cols), or adds them to it if beta is 1. For one number, `cols` is
// not needed.
template <class T>
struct PutSums {
  T* sums;
  T beta;
  int64_t cols = 0;
  __device__ void operator()(int64_t n, int64_t column, T sum) const {
    T& to = sums[n * cols + column];
    to = beta == 0 ? sum : to + sum;
  }
};

// Adds the parts of each sum, and calls put(n, column, sum).
template <class T, int N, class Put>
void put_sums_of(const Context& ctx, const char* op, const ColumnParts<T, N>& a, const Put& put) {
  const Grid grid{blocks_of(N * ((a.cols + kWarpLanes - 1) / kWarpLanes)), kThreads, kThreads * sizeof(T)};
  launch(ctx, op, grid, put_column_sums<T, N, Put>, a, put);
}

// Calls put(n, column, sum) for the sums over the rows of a matrix. Put: a struct of sizes and device
// pointers with `__device__ void operator()(int64_t n, int64_t column, T sum) const`. Values: such a struct with
// `template <int C> __device__ void add(int64_t row, int64_t column, T (&sums)[N][C]) const`, for C = 1 and kQuad.
template <class T, int N, class Values, class Put>
void sum_columns_of(Context& ctx, const char* op, const SummedMatrix& matrix, const Values& values, const Put& put) {
  const int64_t rows = matrix.rows, cols = matrix.cols;
  if (cols == 0) return;
  const int64_t count = (rows + kRowsOfPart - 1) / kRowsOfPart;
  Tensor parts = ctx.empty({N, count, cols}, dtype_of<T>);
  const ColumnParts<T, N> a{parts.data<T>(), rows, cols, count};
  const auto start = [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value, kWide = kWarpLanes * kColumns;
    const Grid grid{blocks_of(count * ((cols + kWide - 1) / kWide)), kThreads, N * kRowThreads * kWide * sizeof(T)};
    launch(ctx, op, grid, sum_column_parts<kColumns, T, N, Values>, a, values);
  };
  if (count > 0 && matrix.aligned && cols % kQuad == 0)
    start(std::integral_constant<int, kQuad>());
  else if (count > 0)
    start(std::integral_constant<int, 1>());
  put_sums_of(ctx, op, a, put);
}

}  // namespace lmx::cuda
