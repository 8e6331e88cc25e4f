// A team of warps computes a row, which stays in its registers: a thread has four quads that are 16 columns apart,
// whose elements share four blocks of random words (dropout_mask.h).
#include "ops/residual/residual_norm.h"

#include <algorithm>
#include <cmath>

#include "backend/cuda/columns.cuh"
#include "ops/layers/layer_norm.h"
#include "ops/layers/masked.cuh"

namespace lmx::ops {
namespace {

constexpr int kMostWarps = cuda::kThreads / cuda::kWarpLanes;  // of a block
constexpr int kScratch = 2 * kMostWarps;                       // floats of shared memory for sums over a team
constexpr int64_t kMostBlocks = 264;  // that share the rows of backward: two for each processor of an H100

using Values = float[4][cuda::kQuad];  // of a thread

// The columns of a thread in one row. Quads: whether the row's elements are moved by quads.
template <bool Quads>
struct RowPart {
  int64_t first, cols;  // cols is 0 for a row that does not exist
  __device__ int64_t column(int w) const { return first + w * kMaskLanes; }
  __device__ bool has(int w, int e) const { return column(w) + (Quads ? 0 : e) < cols; }
  // Calls use(w, e) for the elements that exist.
  template <class Use>
  __device__ void each(Use use) const {
    LMX_UNROLL
    for (int w = 0; w < 4; ++w) {
      LMX_UNROLL
      for (int e = 0; e < cuda::kQuad; ++e)
        if (has(w, e)) use(w, e);
    }
  }
  // Elements that do not exist are 0.
  template <class T>
  __device__ void load(const T* row, Values& to) const {
    constexpr int N = Quads ? cuda::kQuad : 1;
    LMX_UNROLL
    for (int w = 0; w < 4; ++w) {
      LMX_UNROLL
      for (int e = 0; e < cuda::kQuad; e += N) {
        T from[N]{};
        if (has(w, e)) cuda::elements_at(row + column(w) + e, from);
        LMX_UNROLL
        for (int i = 0; i < N; ++i) to[w][e + i] = static_cast<float>(from[i]);
      }
    }
  }
  // Calls put(column, elements) for the quads or elements that exist.
  template <class Put>
  __device__ void store(const Values& from, Put put) const {
    constexpr int N = Quads ? cuda::kQuad : 1;
    LMX_UNROLL
    for (int w = 0; w < 4; ++w) {
      LMX_UNROLL
      for (int e = 0; e < cuda::kQuad; e += N) {
        float elements[N];
        LMX_UNROLL
        for (int i = 0; i < N; ++i) elements[i] = from[w][e + i];
        if (has(w, e)) put(column(w) + e, elements);
      }
    }
  }
};

// The block's threads as teams of `warps` warps.
struct Team {
  int warps;
  float* scratch;  // (2, kMostWarps) shared memory
  __device__ int threads() const { return warps * cuda::kWarpLanes; }
  __device__ int64_t count() const { return blockDim.x / static_cast<unsigned>(threads()); }
  __device__ int64_t index() const { return threadIdx.x / static_cast<unsigned>(threads()); }
  template <bool Quads>
  __device__ RowPart<Quads> part(int64_t cols) const {
    const int64_t block = static_cast<int64_t>(threadIdx.x % static_cast<unsigned>(threads())) * cuda::kQuad;
    return {block / kMaskLanes * kMaskColumns + block % kMaskLanes, cols};
  }
  // The sum over the threads of a team. Every thread of the block calls it, for the memory 0 and 1 in turn: so one
  // barrier is enough.
  __device__ float sum(float value, int memory) const {
    value = cuda::warp_reduce(value, cuda::AddValues{});
    if (warps == 1) return value;
    float* of_warps = scratch + memory * kMostWarps;
    const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpLanes, first = warp / warps * warps;
    if (threadIdx.x % cuda::kWarpLanes == 0) of_warps[warp] = value;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < warps; ++w) total += of_warps[first + w];
    return total;
  }
};

// Puts the residual sum of a row into s, from memory if it is stored there. Returns a bit for each element of the
// branch that is kept: 4 w + e for s[w][e].
template <bool Quads, class S>
__device__ uint32_t residual_sum(const ResidualSum<S>& a, const float* stored, const RowPart<Quads>& part, int64_t row,
                                 Values& s) {
  if (part.first >= part.cols) {
    part.load(a.x, s);  // zeros
    return 0;
  }
  part.load((stored ? stored : a.x) + row * a.cols, s);
  if (!a.product || (stored && a.mask.threshold == 0)) return ~0u;
  Values product{}, bias{};
  if (!stored) part.load(a.product + row * a.cols, product);
  if (!stored && a.bias) part.load(a.bias, bias);
  const float scale = static_cast<float>(a.mask.keep_scale);
  uint32_t kept = 0;
  LMX_UNROLL
  for (int e = 0; e < cuda::kQuad; ++e) {
    const MaskWords words = words_of(a, row, part.first / kMaskColumns * kMaskLanes + part.first % kMaskLanes + e);
    LMX_UNROLL
    for (int w = 0; w < 4; ++w) {
      const float factor = mask_factor(words.word[w], a.mask.threshold, scale);
      s[w][e] += (product[w][e] + bias[w][e]) * factor;
      if (factor != 0) kept |= 1u << (w * cuda::kQuad + e);
    }
  }
  return kept;
}

template <bool Quads, class S>
__global__ void __launch_bounds__(cuda::kThreads) forward_kernel(ResidualNormForward<S> a, int warps) {
  cuda::wait_for_previous();
  const Team team{warps, cuda::shared<float>()};
  const int64_t row = blockIdx.x * team.count() + team.index(), at = row * a.sum.cols;
  const auto part = team.part<Quads>(row < a.sum.rows ? a.sum.cols : 0);
  const float n = static_cast<float>(a.sum.cols);
  Values s, gain{}, bias{};
  residual_sum(a.sum, nullptr, part, row, s);
  if (a.s) part.store(s, [&](int64_t column, const auto& sum) { cuda::put_elements(a.s + at + column, sum); });
  if (!a.gain) return;
  float sum = 0, squares = 0;
  part.each([&](int w, int e) { sum += s[w][e]; });
  const float mean = a.rms ? 0.0f : team.sum(sum, 0) / n;
  part.each([&](int w, int e) { squares += (s[w][e] - mean) * (s[w][e] - mean); });
  const RowStats<float> stats{mean, 1.0f / std::sqrt(team.sum(squares, 1) / n + a.eps)};
  part.load(a.gain, gain);
  if (a.bias) part.load(a.bias, bias);
  part.each([&](int w, int e) { s[w][e] = layer_norm_value(s[w][e], gain[w][e], bias[w][e], stats); });
  part.store(s, [&](int64_t column, const auto& y) {
    if (a.y) cuda::put_elements(a.y + at + column, y);
    if (a.operand.to) cuda::put_elements(a.operand, at + column, y);
  });
  if (part.first != 0 || part.cols == 0) return;
  a.stats[2 * row] = stats.mean;
  a.stats[2 * row + 1] = stats.r;
}

// The sums of a thread over its rows: of dy xhat, of dy and of the gradient of the branch, for each of its columns.
struct Sums {
  Values of_gain, of_bias, of_branch;
};

template <bool Quads, class S>
__device__ void backward_row(const ResidualNormBackward<S>& a, const Team& team, int64_t row, Sums& sums) {
  const auto part = team.part<Quads>(row < a.sum.rows ? a.sum.cols : 0);
  const int64_t at = row * a.sum.cols;
  const float n = static_cast<float>(a.sum.cols);
  Values s, dy{}, gain{};
  const uint32_t kept = residual_sum(a.sum, a.s, part, row, s);
  if (a.dy) part.load(a.dy + at, dy);
  if (a.rounded_dy) part.load(a.rounded_dy + at, dy);
  if (a.gain) part.load(a.gain, gain);
  RowStats<float> stats{};
  if (part.cols > 0 && a.gain) stats = {a.stats[2 * row], a.stats[2 * row + 1]};
  float sum = 0, projected = 0;
  part.each([&](int w, int e) {
    const float g = dy[w][e] * gain[w][e];
    sum += g;
    projected += g * (s[w][e] - stats.mean);
    sums.of_gain[w][e] += layer_norm_gain(s[w][e], dy[w][e], stats);
    sums.of_bias[w][e] += dy[w][e];
  });
  // Both sums also for the root mean square: they use the two memories in turn.
  const float sum_g = team.sum(sum, 0), mean_g = a.rms ? 0.0f : sum_g / n;
  const float mean_gx = team.sum(projected, 1) * stats.r / n;
  part.each([&](int w, int e) { s[w][e] = layer_norm_slope(s[w][e], gain[w][e], dy[w][e], stats, mean_g, mean_gx); });
  if (a.ds) {
    Values ds;
    part.load(a.ds + at, ds);
    part.each([&](int w, int e) { s[w][e] += ds[w][e]; });
  }
  part.each([&](int w, int e) {
    const bool keeps = kept >> (w * cuda::kQuad + e) & 1;
    dy[w][e] = keeps ? s[w][e] * static_cast<float>(a.sum.mask.keep_scale) : 0.0f;  // of the branch
    sums.of_branch[w][e] += dy[w][e];
  });
  if (a.dx) {
    part.store(s, [&](int64_t column, auto& ds) {
      constexpr int N = sizeof(ds) / sizeof(float);
      float before[N]{};
      if (a.beta != 0) cuda::elements_at(a.dx + at + column, before);
      for (int i = 0; i < N; ++i) before[i] += ds[i];
      cuda::put_elements(a.dx + at + column, before);
    });
  }
  if (a.dproduct) {
    part.store(dy, [&](int64_t column, const auto& gradient) {
      constexpr int N = sizeof(gradient) / sizeof(float);
      S rounded[N];
      for (int i = 0; i < N; ++i) rounded[i] = static_cast<S>(gradient[i]);
      cuda::put_elements(a.dproduct + at + column, rounded);
    });
  }
}

// Adds the values of a block's teams, and stores them as the block's part of sum `n`.
template <bool Quads>
__device__ void store_part(const cuda::ColumnParts<float, 3>& parts, const Team& team, int n, const Values& values) {
  float* of_teams = team.scratch + kScratch;  // (teams, cols)
  __syncthreads();                            // it may still be read for the sum before this one
  team.part<Quads>(parts.cols).store(values, [&](int64_t column, const auto& from) {
    cuda::put_elements(of_teams + team.index() * parts.cols + column, from);
  });
  __syncthreads();
  for (int64_t column = threadIdx.x; column < parts.cols; column += blockDim.x) {
    float sum = 0;
    for (int64_t t = 0; t < team.count(); ++t) sum += of_teams[t * parts.cols + column];
    parts.parts[(n * parts.count + blockIdx.x) * parts.cols + column] = sum;
  }
}

template <bool Quads, class S>
__global__ void __launch_bounds__(cuda::kThreads, Quads ? 2 : 1)
    backward_kernel(ResidualNormBackward<S> a, int warps, cuda::ColumnParts<float, 3> parts) {
  cuda::wait_for_previous();
  const Team team{warps, cuda::shared<float>()};
  Sums sums{};
  for (int64_t first = blockIdx.x * team.count(); first < a.sum.rows; first += gridDim.x * team.count())
    backward_row<Quads>(a, team, first + team.index(), sums);
  store_part<Quads>(parts, team, 0, sums.of_gain);
  store_part<Quads>(parts, team, 1, sums.of_bias);
  store_part<Quads>(parts, team, 2, sums.of_branch);
}

struct PutGradients {
  SummedGradient gain, bias, branch_bias;
  __device__ void operator()(int64_t n, int64_t column, float sum) const {
    if (n == 0) put(gain, column, sum);
    if (n == 1) put(bias, column, sum);
    if (n == 2) put(branch_bias, column, sum);
  }
  __device__ static void put(const SummedGradient& to, int64_t column, float sum) {
    if (to.sums) cuda::PutSums<float>{to.sums, to.beta}(0, column, sum);
  }
};

// Warps of a row, and rows that a block computes at once.
struct Shares {
  int warps;
  int64_t teams;
  explicit Shares(int64_t cols)
      : warps(static_cast<int>((cols + 16 * cuda::kWarpLanes - 1) / (16 * cuda::kWarpLanes))),
        teams(kMostWarps / warps) {
    LMX_CHECK(cols <= kMostResidualColumns, "residual_norm of rows of ", cols);
  }
  unsigned threads() const { return static_cast<unsigned>(teams * warps * cuda::kWarpLanes); }
};

template <class S>
bool aligned(const ResidualSum<S>& a) {
  return a.cols % cuda::kQuad == 0 && cuda::aligned_quads(a.x, a.bias) && cuda::aligned_quads(a.product);
}

template <class S>
void forward(Context& ctx, const ResidualNormForward<S>& a) {
  const Shares shares(a.sum.cols);
  if (a.sum.rows == 0) return;
  const bool quads = aligned(a.sum) && cuda::aligned_quads(a.gain, a.bias, a.s, a.y) && cuda::aligned_quads(a.operand);
  const cuda::Grid grid{cuda::blocks_of((a.sum.rows + shares.teams - 1) / shares.teams), shares.threads(),
                        kScratch * sizeof(float)};
  cuda::launch(ctx, a.kName, grid, quads ? forward_kernel<true, S> : forward_kernel<false, S>, a, shares.warps);
}

template <class S>
void backward(Context& ctx, const ResidualNormBackward<S>& a) {
  const Shares shares(a.sum.cols);
  const bool quads = aligned(a.sum) && cuda::aligned_quads(a.gain, a.s, a.dy, a.ds, a.dx) &&
                     cuda::aligned_quads(a.rounded_dy, a.dproduct);
  const int64_t blocks = std::min(kMostBlocks, (a.sum.rows + shares.teams - 1) / shares.teams);
  Tensor memory = ctx.empty(Shape{3, blocks, a.sum.cols}, DType::f32);
  const cuda::ColumnParts<float, 3> parts{memory.data<float>(), a.sum.rows, a.sum.cols, blocks};
  const cuda::Grid grid{cuda::blocks_of(blocks), shares.threads(),
                        static_cast<size_t>(kScratch + shares.teams * a.sum.cols) * sizeof(float)};
  if (blocks > 0)
    cuda::launch(ctx, a.kName, grid, quads ? backward_kernel<true, S> : backward_kernel<false, S>, a, shares.warps,
                 parts);
  cuda::put_sums_of(ctx, a.kName, parts, PutGradients{a.dgain, a.dbias, a.dproduct_bias});
}

const KernelAdder adder(Device::Kind::cuda, forward<bfloat16>, forward<float16>, backward<bfloat16>, backward<float16>);

}  // namespace
}  // namespace lmx::ops
