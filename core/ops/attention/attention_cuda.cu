// Each kernel computes the scores of a tile again, so that no weights are stored and every sum has one owner: forward
// and dq a tile of queries, dk and dv a tile of keys, dbias a tile of the bias. Blocks that find no rows in their
// sequence end at once. A head of more than 64 columns is divided among blocks.
#include <cmath>

#include "backend/cuda/reduce.cuh"
#include "lmx/quads.cuh"
#include "ops/attention/attention.h"
#include "ops/attention/attention_mma.h"
#include "ops/attention/tiles.cuh"

namespace lmx::ops {
namespace {

template <class Combine, class T>
__device__ T over_columns(T value, Combine combine) {
  for (int lanes = kThreadColumns / 2; lanes > 0; lanes /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  return value;
}

// Softmax over keys that arrive in tiles: the largest score of each row so far, and the sum of exponentials relative to
// it.
template <class T>
struct Running {
  T top[kEach], sum[kEach];
  // Replaces the products of keys from `first` on by weights before division by the sum, and scales y accordingly.
  __device__ void take(const Pair<T>& pair, int64_t query, int64_t first, Tile<T>& s, Tile<T>& y) {
    const T none = static_cast<T>(-INFINITY);
    for (int r = 0; r < kEach; ++r) {
      const int64_t i = query + thread_row(r);
      T most = top[r];
      for (int c = 0; c < kEach; ++c) {
        const int64_t j = first + thread_column(c);
        s[r][c] = pair.sees(i, j) ? pair.score(s[r][c], i, j) : none;
        most = s[r][c] > most ? s[r][c] : most;
      }
      most = over_columns(most, cuda::LargerValue{});
      const T shift = most == none ? T(0) : most;  // if all keys are hidden so far, their weights are 0
      const T shrink = fast_exp(top[r] - shift);
      T part = 0, factors[kEach];
      pair.drop_columns(i, first, factors);
      for (int c = 0; c < kEach; ++c) {
        const T weight = s[r][c] == none ? T(0) : fast_exp(s[r][c] - shift);
        part += weight;
        s[r][c] = weight * factors[c];
        y[r][c] *= shrink;
      }
      top[r] = most;
      sum[r] = sum[r] * shrink + over_columns(part, cuda::AddValues{});
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kTileThreads) forward_kernel(AttentionForward<T> a) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const Part part(plan.heads, tiles(plan.queries, kTileRows), plan.size);
  const Pair<T> pair(a.in, part.sequence, part.head);
  const int64_t first = part.tile * kTileRows;
  if (first >= pair.q.rows) return;
  const TileMemory<T> memory;
  Tile<T> s, y{};
  Running<T> rows;
  for (int r = 0; r < kEach; ++r) {
    rows.top[r] = static_cast<T>(-INFINITY);
    rows.sum[r] = 0;
  }
  const int64_t end = pair.seen(first + kTileRows);
  for (int64_t j = 0; j < end; j += kTileColumns) {
    multiply_rows(memory, pair.q, first, pair.k, j, s);
    rows.take(pair, first, j, s, y);
    add_weighted_rows(memory, s, pair.v, j, part.column, y);
  }
  for (int r = 0; r < kEach; ++r) {
    const int64_t i = first + thread_row(r);
    const bool hidden = rows.sum[r] == 0;
    for (int c = 0; c < kEach; ++c) y[r][c] = hidden ? T(0) : y[r][c] / rows.sum[r];
    if (i < pair.q.rows && part.column == 0 && thread_column(0) == 0)
      a.lse[pair.lse_at(i)] = hidden ? static_cast<T>(INFINITY) : rows.top[r] + fast_log(rows.sum[r]);
  }
  const int64_t width = plan.heads * plan.size;
  const int64_t at = pair.query * width + part.head * plan.size;
  put(y, TileTarget<T>{a.y + at, width, pair.q.rows, plan.size, false, a.operand, at}, first, part.column);
}

// dy_i . y_i of each head and row; kDeltaLanes lanes of a warp for each. Sequences have plan.queries places, those
// beyond their rows unused.
constexpr int kDeltaLanes = 16;

template <class T, class S>
__global__ void delta_kernel(AttentionBackward<T, S> a, T* deltas) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const int64_t places = blockDim.x / kDeltaLanes, lane = threadIdx.x % kDeltaLanes;
  const int64_t place = static_cast<int64_t>(blockIdx.x) * places + threadIdx.x / kDeltaLanes;
  const auto [pair, i] = cuda::position_of(place, plan.queries);
  const auto [sequence, head] = cuda::position_of(pair, plan.heads);
  const bool exists = sequence < plan.sequences;
  const int64_t row = exists ? a.in.query_begin[sequence] + i : 0;
  const bool used = exists && row < a.in.query_begin[sequence + 1];
  const S *dy = a.dy + (row * plan.heads + head) * plan.size, *y = a.y + (row * plan.heads + head) * plan.size;
  const bool quads = plan.size % cuda::kQuad == 0 && cuda::aligned_quads(a.dy, a.y);
  T sum = 0;
  if (used && quads) {
    for (int64_t c = lane * cuda::kQuad; c < plan.size; c += kDeltaLanes * cuda::kQuad) {
      const cuda::Quad<S> slopes = cuda::quad_at(dy + c), values = cuda::quad_at(y + c);
      for (int e = 0; e < cuda::kQuad; ++e) sum += static_cast<T>(slopes.v[e]) * static_cast<T>(values.v[e]);
    }
  } else if (used) {
    for (int64_t c = lane; c < plan.size; c += kDeltaLanes) sum += static_cast<T>(dy[c]) * static_cast<T>(y[c]);
  }
  sum = cuda::warp_reduce<kDeltaLanes>(sum, cuda::AddValues{});
  if (used && lane == 0) deltas[place] = sum;
}

// The common part of the kernels of the backward pass. `deltas` is the result of delta_kernel.
template <class T, class S = T>
struct Slopes {
  const AttentionBackward<T, S>& a;
  const Pair<T, S>& pair;
  const T* deltas;  // of the pair
  __device__ Slopes(const AttentionBackward<T, S>& args, const Pair<T, S>& p, const T* all)
      : a(args), pair(p), deltas(all + (p.sequence * args.in.plan.heads + p.head) * args.in.plan.queries) {}
  // Replaces `s`, the product of query i and key j, by their weight after dropout, and `dw`, that of dy and v, by the
  // gradient of the score times `scale`.
  __device__ void weight_and_slope(int64_t i, int64_t j, T factor, T scale, T& s, T& dw) const {
    if (!pair.sees(i, j)) {
      s = dw = 0;
      return;
    }
    const T weight = fast_exp(pair.score(s, i, j) - a.lse[pair.lse_at(i)]);
    dw = score_slope(weight, dw * factor, deltas[i], scale);
    s = weight * factor;
  }
  // The gradients of the scores of a tile whose rows are queries and whose columns are keys.
  __device__ void by_query(const TileMemory<T>& memory, int64_t query, int64_t key, T scale, Tile<T>& slopes) const {
    Tile<T> s;
    multiply_rows(memory, pair.q, query, pair.k, key, s);
    multiply_rows(memory, pair.output_rows(a.dy), query, pair.v, key, slopes);
    for (int r = 0; r < kEach; ++r) {
      T factors[kEach];
      pair.drop_columns(query + thread_row(r), key, factors);
      for (int c = 0; c < kEach; ++c)
        weight_and_slope(query + thread_row(r), key + thread_column(c), factors[c], scale, s[r][c], slopes[r][c]);
    }
  }
  // The same for a tile whose rows are keys and whose columns are queries, and the weights.
  __device__ void by_key(const TileMemory<T>& memory, int64_t key, int64_t query, Tile<T>& weights,
                         Tile<T>& slopes) const {
    multiply_rows(memory, pair.k, key, pair.q, query, weights);
    multiply_rows(memory, pair.v, key, pair.output_rows(a.dy), query, slopes);
    for (int c = 0; c < kEach; ++c) {
      T factors[kEach];
      pair.drop_rows(query + thread_column(c), key, factors);
      for (int r = 0; r < kEach; ++r)
        weight_and_slope(query + thread_column(c), key + thread_row(r), factors[r], pair.scale, weights[r][c],
                         slopes[r][c]);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kTileThreads) dq_kernel(AttentionBackward<T> a, const T* deltas) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const Part part(plan.heads, tiles(plan.queries, kTileRows), plan.size);
  const Pair<T> pair(a.in, part.sequence, part.head);
  const int64_t first = part.tile * kTileRows;
  if (first >= pair.q.rows) return;
  const TileMemory<T> memory;
  const Slopes<T> slopes(a, pair, deltas);
  Tile<T> ds, dq{};
  const int64_t end = pair.seen(first + kTileRows);
  for (int64_t j = 0; j < end; j += kTileColumns) {
    slopes.by_query(memory, first, j, pair.scale, ds);
    add_weighted_rows(memory, ds, pair.k, j, part.column, dq);
  }
  put(dq, gradient_of(a.dq, pair.q, pair.query, part.head), first, part.column);
}

// The gradients of one head of keys and values, summed over the queries of all heads that use it.
template <class T>
__global__ void __launch_bounds__(kTileThreads) dk_dv_kernel(AttentionBackward<T> a, const T* deltas) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const Part part(plan.kv_heads, tiles(plan.keys, kTileRows), plan.size);
  const int64_t first = part.tile * kTileRows, group = plan.group();
  if (first >= a.in.key_begin[part.sequence + 1] - a.in.key_begin[part.sequence]) return;
  const TileMemory<T> memory;
  Tile<T> w, ds, dk{}, dv{};
  for (int64_t head = part.head * group; head < (part.head + 1) * group; ++head) {
    const Pair<T> pair(a.in, part.sequence, head);
    const Slopes<T> slopes(a, pair, deltas);
    for (int64_t i = plan.causal ? first : 0; i < pair.q.rows; i += kTileColumns) {
      slopes.by_key(memory, first, i, w, ds);
      add_weighted_rows(memory, w, pair.output_rows(a.dy), i, part.column, dv);
      add_weighted_rows(memory, ds, pair.q, i, part.column, dk);
    }
  }
  const Pair<T> pair(a.in, part.sequence, part.head * group);
  put(dk, gradient_of(a.dk, pair.k, pair.key, part.head), first, part.column);
  put(dv, gradient_of(a.dv, pair.v, pair.key, part.head), first, part.column);
}

// A tile of the bias of one or all sequences and of one or all heads, which are added in order.
template <class T, class S>
__global__ void __launch_bounds__(kTileThreads, 1) dbias_kernel(AttentionBackward<T, S> a, const T* deltas) {
  cuda::wait_for_previous();
  const AttentionPlan& plan = a.in.plan;
  const BiasShape& shape = plan.bias;
  const int64_t query_tiles = tiles(plan.queries, kTileRows), key_tiles = tiles(plan.keys, kTileColumns);
  const int64_t tile = blockIdx.x % (query_tiles * key_tiles), of = blockIdx.x / (query_tiles * key_tiles);
  const int64_t query = tile / key_tiles * kTileRows, key = tile % key_tiles * kTileColumns;
  const int64_t b0 = of / shape.heads, h0 = of % shape.heads;
  const TileMemory<T> memory;
  Tile<T> ds, sum{};
  for (int64_t b = b0; b < (shape.sequences > 1 ? b0 + 1 : plan.sequences); ++b) {
    for (int64_t h = h0; h < (shape.heads > 1 ? h0 + 1 : plan.heads); ++h) {
      const Pair<T, S> pair(a.in, b, h);
      if (query >= pair.q.rows || key >= pair.seen(query + kTileRows)) continue;
      Slopes<T, S>(a, pair, deltas).by_query(memory, query, key, T(1), ds);
      for (int r = 0; r < kEach; ++r)
        for (int c = 0; c < kEach; ++c) sum[r][c] += ds[r][c];
    }
  }
  put(sum, TileTarget<T>{a.dbias + shape.at(b0, h0, 0), shape.keys, plan.queries, plan.keys, false}, query, key);
}

template <class T, class Args, class... More>
void launch_tiles(Context& ctx, int64_t blocks, void (*kernel)(Args, More...), const Args& a, More... more) {
  if (blocks == 0) return;
  const cuda::Grid grid{cuda::blocks_of(blocks), kTileThreads, TileMemory<T>::kBytes};
  cuda::launch(ctx, Args::kName, grid, kernel, a, more...);
}

// The result of delta_kernel.
template <class T, class S>
Tensor deltas_of(Context& ctx, const AttentionBackward<T, S>& a) {
  constexpr int64_t kPlaces = cuda::kThreads / kDeltaLanes;
  const AttentionPlan& plan = a.in.plan;
  const int64_t rows = plan.sequences * plan.heads * plan.queries;
  Tensor deltas = ctx.empty({rows}, dtype_of<T>);
  if (rows > 0)
    cuda::launch(ctx, a.kName, {cuda::blocks_of(tiles(rows, kPlaces))}, delta_kernel<T, S>, a, deltas.data<T>());
  return deltas;
}

template <class T, class S>
void differentiate_bias(Context& ctx, const AttentionBackward<T, S>& a, const T* deltas) {
  if (!a.dbias) return;
  const AttentionPlan& plan = a.in.plan;
  const int64_t biases = plan.bias.sequences * plan.bias.heads;
  launch_tiles<T>(ctx, biases * tiles(plan.queries, kTileRows) * tiles(plan.keys, kTileColumns), dbias_kernel<T, S>, a,
                  deltas);
}

template <class T>
void forward(Context& ctx, const AttentionForward<T>& a) {
  const AttentionPlan& plan = a.in.plan;
  const int64_t blocks = plan.sequences * plan.heads * tiles(plan.queries, kTileRows) * tiles(plan.size, kTileColumns);
  launch_tiles<T>(ctx, blocks, forward_kernel<T>, a);
}

template <class T>
void backward(Context& ctx, const AttentionBackward<T>& a) {
  const AttentionPlan& plan = a.in.plan;
  const int64_t columns = tiles(plan.size, kTileColumns);
  const Tensor memory = deltas_of(ctx, a);
  const T* const deltas = memory.data<T>();
  launch_tiles<T>(ctx, plan.sequences * plan.heads * tiles(plan.queries, kTileRows) * columns, dq_kernel<T>, a, deltas);
  launch_tiles<T>(ctx, plan.sequences * plan.kv_heads * tiles(plan.keys, kTileRows) * columns, dk_dv_kernel<T>, a,
                  deltas);
  differentiate_bias(ctx, a, deltas);
}

template <class Half>
void forward_rounded(Context& ctx, const AttentionForward<float, Half>& a) {
  uses_sentences(a.in.plan) ? forward_sentences(ctx, a) : forward_mma(ctx, a);
}

template <class Half>
void backward_rounded(Context& ctx, const AttentionBackward<float, Half>& a) {
  if (uses_sentences(a)) return backward_sentences(ctx, a);
  const Tensor memory = deltas_of(ctx, a);
  backward_mma(ctx, a, memory.data<float>());
  differentiate_bias(ctx, a, memory.data<float>());
}

const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>, backward<float>, backward<double>,
                        forward_rounded<bfloat16>, forward_rounded<float16>, backward_rounded<bfloat16>,
                        backward_rounded<float16>);

}  // namespace
}  // namespace lmx::ops
