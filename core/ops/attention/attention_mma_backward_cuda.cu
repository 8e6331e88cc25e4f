// The backward pass of attention on tensor cores. A block of dq_kernel has a tile of queries and passes over the keys;
// a block of dk_dv_kernel has a tile of keys and passes over the queries of all heads that use it. Every sum has one
// owner. The weights are computed again, and stay in registers as well as the gradients.
#include "ops/attention/attention_mma.h"
#include "ops/attention/mma_tiles.cuh"

namespace lmx::ops {
namespace {

constexpr int kColumns = 16, kElements = kColumns / 2;  // of a warp's tile; of a thread
using Tile16 = WarpTile<kColumns>;
// Passes of stage_rows() in a loop that keeps sums in registers.
template <int D>
constexpr int kPasses = 128 / D;

// A query's log-sum-exp and dy . y.
struct QueryNumber {
  float lse, delta;
};

// The numbers of the queries of a pair.
struct QueryNumbers {
  const float *lse, *delta;  // of query 0
  int64_t stride;            // of lse
  int queries;
  template <class Half>
  __device__ QueryNumbers(const AttentionBackward<float, Half>& a, const Pair<float, Half>& pair, const float* deltas)
      : lse(a.lse + pair.lse_at(0)),
        delta(deltas + (pair.sequence * a.in.plan.heads + pair.head) * a.in.plan.queries),
        stride(a.in.plan.heads),
        queries(static_cast<int>(pair.q.rows)) {}
  // Those of query i; zeros beyond the last.
  __device__ QueryNumber of(int i) const {
    if (i >= queries) return {0, 0};
    return {lse[i * stride], delta[i]};
  }
};

// Replaces scores by weights after dropout, W, and `dw`, the gradient of W, by the gradient of the products q k. Both
// are 0 if the query does not see the key. number(e): of the query of element e. `kept`: see kept_elements().
template <bool ByKey, class Half, class NumberOf>
__device__ void weights_and_slopes(const ScoreTile<ByKey>& tile, const Pair<float, Half>& pair, NumberOf number,
                                   uint32_t kept, Tile16& s, Tile16& dw) {
  const float keeps = keep_scale(pair);
  LMX_UNROLL
  for (int e = 0; e < kElements; ++e) {
    float &w = s[e / 4][e % 4], &slope = dw[e / 4][e % 4];
    const bool sees = tile.sees(e);
    const QueryNumber of = number(e);
    const float weight = fast_exp(w - of.lse), factor = kept >> e & 1u ? keeps : 0.0f;
    slope = sees ? score_slope(weight, slope * factor, of.delta, pair.scale) : 0.0f;
    w = sees ? weight * factor : 0.0f;
  }
}

template <class Half, int D>
__global__ void __launch_bounds__(kMmaThreads, kBlocks<D>)
    dq_kernel(AttentionBackward<float, Half> a, const float* deltas) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const WarpPlace place;
  const Part part(plan.heads, tiles(plan.queries, place.rows), 1);
  const Pair<float, Half> pair(a.in, part.sequence, part.head);
  const int first = static_cast<int>(part.tile) * place.rows, query = first + place.row;
  if (first >= pair.q.rows) return;
  const BlockMemory<Half, D, 2> memory(place.rows);
  stage_rows<Half, D>(pair.q, first, place.rows, memory.own[0]);
  stage_rows<Half, D>(pair.output_rows(a.dy), first, place.rows, memory.own[1]);
  const QueryNumbers numbers(a, pair, deltas);
  const QueryNumber number[2] = {numbers.of(query + cuda::sum_row(0)), numbers.of(query + cuda::sum_row(2))};
  WarpSums<D> dq{};
  over_keys(pair, place, first, memory, [&](int begin, int seen) {
    LMX_UNROLL_BY(1)
    for (int part_key = 0; part_key < kOtherRows && begin + part_key < seen; part_key += kColumns) {
      const int key = begin + part_key;
      Tile16 s, ds;
      multiply_rows<Half, D>(memory.own[0], place.row, memory.other[0], part_key, plan.size, s);
      multiply_rows<Half, D>(memory.own[1], place.row, memory.other[1], part_key, plan.size, ds);
      const ScoreTile<false> tile(pair, query, key);
      tile.score(pair, query, key, s);
      const uint32_t kept = kept_elements<false, kElements>(memory.dropped, pair, place.row, key % kMaskColumns);
      weights_and_slopes(
          tile, pair, [&](int e) { return number[e / 2 % 2]; }, kept, s, ds);
      add_weighted_rows<Half, D>(ds, memory.other[0], part_key, plan.size, dq);
    }
  });
  put_rows<Half, D>(dq, memory.own[0].at(place.row, 0), gradient_of(a.dq, pair.q, pair.query, part.head), query);
}

// Adds the part of the queries of one head to the gradients of keys [first, ...) and of their values.
template <class Half, int D>
__device__ void add_queries(const AttentionBackward<float, Half>& a, const Pair<float, Half>& pair, const float* deltas,
                            int first, const BlockMemory<Half, D, 2>& memory, WarpSums<D> (&sums)[2]) {
  const AttentionPlan& plan = a.in.plan;
  const WarpPlace place;
  const QueryNumbers numbers(a, pair, deltas);
  const int key = first + place.row, queries = static_cast<int>(pair.q.rows);
  for (int query = plan.causal ? first : 0; query < queries; query += kOtherRows) {
    __syncthreads();  // the tile before this one may still be read
    stage_rows<Half, D, kPasses<D>>(pair.q, query, kOtherRows, memory.other[0]);
    stage_rows<Half, D, kPasses<D>>(pair.output_rows(a.dy), query, kOtherRows, memory.other[1]);
    memory.dropped.stage(pair, query, kOtherRows, first / kMaskColumns);
    if (threadIdx.x < kOtherRows) {
      const QueryNumber number = numbers.of(query + static_cast<int>(threadIdx.x));
      memory.lse[threadIdx.x] = number.lse;
      memory.delta[threadIdx.x] = number.delta;
    }
    __syncthreads();
    if (key >= pair.k.rows) continue;
    LMX_UNROLL_BY(1)
    for (int part = 0; part < kOtherRows && query + part < queries; part += kColumns) {
      if (plan.causal && query + part + kColumns <= key) continue;  // no query sees the warp's keys
      Tile16 w, ds;
      multiply_rows<Half, D>(memory.own[0], place.row, memory.other[0], part, plan.size, w);
      multiply_rows<Half, D>(memory.own[1], place.row, memory.other[1], part, plan.size, ds);
      const ScoreTile<true> tile(pair, query + part, key);
      tile.score(pair, query + part, key, w);
      const uint32_t kept = kept_elements<true, kElements>(memory.dropped, pair, part, key % kMaskColumns);
      const auto number = [&](int e) {
        const int i = part + TilePlace<true>::query(e);
        return QueryNumber{memory.lse[i], memory.delta[i]};
      };
      weights_and_slopes(tile, pair, number, kept, w, ds);
      add_weighted_rows<Half, D>(w, memory.other[1], part, plan.size, sums[1]);
      add_weighted_rows<Half, D>(ds, memory.other[0], part, plan.size, sums[0]);
    }
  }
}

// The gradients of one head of keys and values.
template <class Half, int D>
__global__ void __launch_bounds__(kMmaThreads, kBlocks<D>)
    dk_dv_kernel(AttentionBackward<float, Half> a, const float* deltas) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const WarpPlace place;
  const Part part(plan.kv_heads, tiles(plan.keys, place.rows), 1);
  const int first = static_cast<int>(part.tile) * place.rows;
  const int64_t head = part.head * plan.group();
  if (first >= a.in.key_begin[part.sequence + 1] - a.in.key_begin[part.sequence]) return;
  const BlockMemory<Half, D, 2> memory(place.rows);
  stage_rows<Half, D>(Pair<float, Half>(a.in, part.sequence, head).k, first, place.rows, memory.own[0]);
  stage_rows<Half, D>(Pair<float, Half>(a.in, part.sequence, head).v, first, place.rows, memory.own[1]);
  WarpSums<D> sums[2]{};  // of dk and dv
  for (int64_t h = head; h < head + plan.group(); ++h)
    add_queries<Half, D>(a, Pair<float, Half>(a.in, part.sequence, h), deltas, first, memory, sums);
  const Pair<float, Half> pair(a.in, part.sequence, head);
  Half* const scratch = memory.own[0].at(place.row, 0);
  put_rows<Half, D>(sums[0], scratch, gradient_of(a.dk, pair.k, pair.key, part.head), first + place.row);
  put_rows<Half, D>(sums[1], scratch, gradient_of(a.dv, pair.v, pair.key, part.head), first + place.row);
}

}  // namespace

template <class Half>
void backward_mma(Context& ctx, const AttentionBackward<float, Half>& a, const float* deltas) {
  const AttentionPlan& plan = a.in.plan;
  with_columns(plan, [&](auto columns) {
    constexpr int D = decltype(columns)::value;
    const MmaTiles queries{plan.sequences * plan.heads, plan.queries}, keys{plan.sequences * plan.kv_heads, plan.keys};
    launch_mma<Half, D, 2>(ctx, "attention_backward_mma", queries, dq_kernel<Half, D>, a, deltas);
    launch_mma<Half, D, 2>(ctx, "attention_backward_mma", keys, dk_dv_kernel<Half, D>, a, deltas);
  });
}

template void backward_mma(Context&, const AttentionBackward<float, bfloat16>&, const float*);
template void backward_mma(Context&, const AttentionBackward<float, float16>&, const float*);

}  // namespace lmx::ops
