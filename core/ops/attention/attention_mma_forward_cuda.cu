// The forward pass of attention on tensor cores: a block for each tile of queries of a head and sequence. Scores,
// weights and sums stay in registers.
#include <cmath>

#include "ops/attention/attention_mma.h"
#include "ops/attention/mma_tiles.cuh"

namespace lmx::ops {
namespace {

using Tile32 = WarpTile<kOtherRows>;
constexpr int kElements = kOtherRows / 2;  // of a thread

constexpr int kRowLanes = 4;  // that have the columns of a row

// Softmax over keys that arrive in tiles, for the two rows of a thread: the largest score so far, and the sum of
// exponentials relative to it.
struct RunningRows {
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // Replaces scores by weights before division by the sum, those of hidden keys by 0, and scales y accordingly.
  template <int D>
  __device__ void take(const ScoreTile<false>& tile, Tile32& s, WarpSums<D>& y) {
    LMX_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = top[half];
      LMX_UNROLL
      for (int e = 2 * half; e < kElements; e += e % 2 ? 3 : 1) {
        float& x = s[e / 4][e % 4];
        x = tile.sees(e) ? x : -INFINITY;
        most = x > most ? x : most;
      }
      most = cuda::warp_reduce<kRowLanes>(most, cuda::LargerValue{});
      const float shift = most == -INFINITY ? 0.0f : most;  // if all keys are hidden so far, their weights are 0
      const float shrink = fast_exp(top[half] - shift);
      float part = 0;
      LMX_UNROLL
      for (int e = 2 * half; e < kElements; e += e % 2 ? 3 : 1) {
        float& x = s[e / 4][e % 4];
        x = x == -INFINITY ? 0.0f : fast_exp(x - shift);
        part += x;
      }
      LMX_UNROLL
      for (int e = 0; e < D / 4; ++e) y[e / 2][2 * half + e % 2] *= shrink;
      top[half] = most;
      sum[half] = sum[half] * shrink + cuda::warp_reduce<kRowLanes>(part, cuda::AddValues{});
    }
  }
  // Divides by the sums; writes the logarithm of each row's sum.
  template <int D>
  __device__ void finish(const AttentionForward<float>& a, const Pair<float>& pair, int query, WarpSums<D>& y) const {
    LMX_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int i = query + cuda::sum_row(2 * half);
      const bool hidden = sum[half] == 0;
      const float inverse = hidden ? 0.0f : 1.0f / sum[half];
      LMX_UNROLL
      for (int e = 0; e < D / 4; ++e) {
        float& x = y[e / 2][2 * half + e % 2];
        x = hidden ? 0.0f : x * inverse;
      }
      if (i < pair.q.rows && cuda::sum_column(0) == 0)
        a.lse[pair.lse_at(i)] = hidden ? INFINITY : top[half] + fast_log(sum[half]);
    }
  }
};

template <class Half, int D>
__global__ void __launch_bounds__(kMmaThreads, kBlocks<D>) forward_kernel(AttentionForward<float> a) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const WarpPlace place;
  const Part part(plan.heads, tiles(plan.queries, place.rows), 1);
  const Pair<float> pair(a.in, part.sequence, part.head);
  const int first = static_cast<int>(part.tile) * place.rows, query = first + place.row;
  if (first >= pair.q.rows) return;
  const BlockMemory<Half, D, 1> memory(place.rows);
  stage_rows<Half, D>(pair.q, first, place.rows, memory.own[0]);
  RunningRows rows;
  WarpSums<D> y{};
  const float keeps = keep_scale(pair);
  over_keys(pair, place, first, memory, [&](int key, int) {
    Tile32 s;
    multiply_rows<Half, D>(memory.own[0], place.row, memory.other[0], 0, plan.size, s);
    const ScoreTile<false> tile(pair, query, key);
    tile.score(pair, query, key, s);
    rows.take<D>(tile, s, y);
    const uint32_t kept = kept_elements<false, kElements>(memory.dropped, pair, place.row, key % kMaskColumns);
    LMX_UNROLL
    for (int e = 0; e < kElements; ++e) s[e / 4][e % 4] *= kept >> e & 1u ? keeps : 0.0f;
    add_weighted_rows<Half, D>(s, memory.other[1], 0, plan.size, y);
  });
  rows.finish<D>(a, pair, query, y);
  const int64_t width = plan.heads * plan.size, at = pair.query * width + part.head * plan.size;
  put_rows<Half, D>(y, {a.y + at, width, pair.q.rows, plan.size, false, a.operand, at}, query);
}

}  // namespace

void forward_mma(Context& ctx, const AttentionForward<float>& a) {
  const AttentionPlan& plan = a.in.plan;
  with_mma_types(plan, [&](auto half, auto columns) {
    using Half = decltype(half);
    constexpr int D = decltype(columns)::value;
    const MmaTiles all{plan.sequences * plan.heads, plan.queries};
    launch_mma<Half, D, 1>(ctx, "attention_forward_mma", all, forward_kernel<Half, D>, a);
  });
}

}  // namespace lmx::ops
