// Kernels that process whole rows of a moderate width: a warp for each row, whose lanes keep it in registers as quads
// (lmx/quads.cuh). So each row is read once, by few instructions, and no barrier is needed.
#pragma once

#include "backend/cuda/reduce.cuh"
#include "backend/cuda/unroll.cuh"
#include "lmx/quads.cuh"

namespace lmx::ops {

constexpr int64_t kWarpQuads = cuda::kWarpLanes * cuda::kQuad;  // elements that a warp moves at once
constexpr int kFewQuads = 4, kMostQuads = 8;                    // of a lane: rows of at most 512 and 1,024 elements

// A lane's part of a row, with zeros beyond the last column.
template <class T, int N>
struct LaneRow {
  cuda::Quad<T> quads[N];

  // The first column of quad q.
  __device__ static int64_t column(int q) {
    return q * kWarpQuads + static_cast<int64_t>(threadIdx.x % cuda::kWarpLanes) * cuda::kQuad;
  }
  __device__ void load(const T* row, int64_t cols) {
    LMX_UNROLL
    for (int q = 0; q < N; ++q) quads[q] = column(q) < cols ? cuda::quad_at(row + column(q)) : cuda::Quad<T>{};
  }
  // Calls use(q, e) for the elements that exist: element e of quad q.
  template <class Use>
  __device__ static void each(int64_t cols, Use use) {
    LMX_UNROLL
    for (int q = 0; q < N; ++q) {
      if (column(q) >= cols) continue;
      LMX_UNROLL
      for (int e = 0; e < cuda::kQuad; ++e) use(q, e);
    }
  }
  // Calls put(column, quad) for the quads that exist.
  template <class Put>
  __device__ void store(int64_t cols, Put put) const {
    LMX_UNROLL
    for (int q = 0; q < N; ++q)
      if (column(q) < cols) put(column(q), quads[q]);
  }
};

template <int N, class Job>
__global__ void lane_row_kernel(Job job) {
  cuda::wait_for_previous();
  const int64_t warps = blockDim.x / cuda::kWarpLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / cuda::kWarpLanes;
  if (row < job.a.rows) job.template operator()<N>(row);
}

// Runs job.operator()<N>(row) for each row of job.a by the lanes of a warp. False, and nothing is enqueued, if rows are
// too wide for that, or quads cannot begin at their columns. Job::aligned(): as for launch_quads().
template <class Job>
bool launch_lane_rows(const Context& ctx, const Job& job) {
  const auto& a = job.a;
  if (a.cols > kMostQuads * kWarpQuads || a.cols % cuda::kQuad != 0 || !job.aligned()) return false;
  constexpr int64_t kWarps = 4;
  const cuda::Grid grid{cuda::blocks_of((a.rows + kWarps - 1) / kWarps), kWarps * cuda::kWarpLanes};
  if (a.rows == 0) return true;
  if (a.cols <= kFewQuads * kWarpQuads)
    cuda::launch(ctx, a.kName, grid, lane_row_kernel<kFewQuads, Job>, job);
  else
    cuda::launch(ctx, a.kName, grid, lane_row_kernel<kMostQuads, Job>, job);
  return true;
}

}  // namespace lmx::ops
