// The weighted values of a warp's queries on tensor cores: scores and weights stay in registers.
#pragma once

#include <cmath>

#include "ops/attention/mma_tiles.cuh"

namespace lmx::ops {

constexpr int kRowLanes = 4;  // that have the columns of a row

// A warp's 16 queries, from number `query` of their sequence on, which are in rows [row, row + 16) of q. The softmax is
// taken over keys that arrive in tiles: `top` is the largest score so far of each of the thread's two rows, and `sum`
// the sum of exponentials relative to it.
template <class Half, int D>
struct WarpQueries {
  const Pair<float, Half>& pair;
  HeadMatrix<Half, D> q;
  int row, query;
  float keeps = keep_scale(pair);
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  WarpSums<D> y{};

  // Adds the values of `Keys` keys from number `key` on, which are in rows [0, Keys) of k and v. `dropped` has the
  // masks of the rows of q for the group of 64 keys.
  template <int Keys>
  __device__ void add_keys(const HeadMatrix<Half, D>& k, const HeadMatrix<Half, D>& v, const DropTile& dropped,
                           int key) {
    WarpTile<Keys> s;
    multiply_rows<Half, D>(q, row, k, 0, pair.in.plan.size, s);
    const ScoreTile<false> tile(pair, query, key);
    tile.score(pair, query, key, s);
    take<Keys>(tile, s);
    const uint32_t kept = kept_elements<false, Keys / 2>(dropped, pair, row, key % kMaskColumns);
    LMX_UNROLL
    for (int e = 0; e < Keys / 2; ++e) s[e / 4][e % 4] *= kept >> e & 1u ? keeps : 0.0f;
    add_weighted_rows<Half, D>(s, v, 0, pair.in.plan.size, y);
  }
  // Replaces scores by weights before division by the sum, those of hidden keys by 0, and scales y accordingly.
  template <int Keys>
  __device__ void take(const ScoreTile<false>& tile, WarpTile<Keys>& s) {
    LMX_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = top[half];
      LMX_UNROLL
      for (int e = 2 * half; e < Keys / 2; e += e % 2 ? 3 : 1) {
        float& x = s[e / 4][e % 4];
        x = tile.sees(e) ? x : -INFINITY;
        most = x > most ? x : most;
      }
      most = cuda::warp_reduce<kRowLanes>(most, cuda::LargerValue{});
      const float shift = most == -INFINITY ? 0.0f : most;  // if all keys are hidden so far, their weights are 0
      const float shrink = fast_exp(top[half] - shift);
      float part = 0;
      LMX_UNROLL
      for (int e = 2 * half; e < Keys / 2; e += e % 2 ? 3 : 1) {
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
  // Writes the queries' rows of y, divided by the sums, and the logarithm of each row's sum.
  __device__ void finish(const AttentionForward<float, Half>& a) {
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
    const AttentionPlan& plan = pair.in.plan;
    const int64_t width = plan.heads * plan.size, at = pair.query * width + pair.head * plan.size;
    float* const to = a.y ? a.y + at : nullptr;
    put_rows<Half, D>(y, q.at(row, 0), {to, width, pair.q.rows, plan.size, false, a.operand, at}, query);
  }
};

}  // namespace lmx::ops
