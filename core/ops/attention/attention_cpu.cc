// A thread processes one head of the keys of one sequence. For each head of queries that uses these keys, it processes
// the queries in blocks whose weights stay in the cache, so that only the weights of one block are stored at a time.
#include "ops/attention/attention.h"

#include <cmath>
#include <deque>
#include <utility>

#include "backend/serial.h"
#include "lmx/math.h"
#include "ops/attention/small_gemm.h"
#include "ops/common.h"

namespace lmx::ops {
namespace {

constexpr int64_t kBlockBytes = 256 << 10;  // weights of a block of queries
constexpr int64_t kBlockRows = 12;          // minimum number of queries of a block: two tiles

// ---- rows of a block

template <class T>
LMX_SIMD void exp_row(T* x, T scale, T shift, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = fast_exp(scale * x[i] - shift);
}

template <class T>
LMX_SIMD void add_bias_row(T* x, const T* bias, T scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = scale * x[i] + bias[i];
}

// y += factor x
template <class T>
LMX_SIMD void add_scaled(T* __restrict y, const T* __restrict x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

template <class T>
LMX_SIMD void slope_row(const T* w, T* dw, T delta, T scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dw[i] = score_slope(w[i], dw[i], delta, scale);
}

LMX_SIMD void round_bf16(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(bfloat16(x[i]));
}
LMX_SIMD void round_f16(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(float16(x[i]));
}
// Rounds a row in the same way as a matrix product rounds its inputs.
void round_row(float* x, int64_t n, DType compute) {
  if (compute == DType::bf16) round_bf16(x, n);
  if (compute == DType::f16) round_f16(x, n);
}
void round_row(double*, int64_t, DType) {}

// ---- a pair

// One (sequence, head of keys), and the position of its rows.
struct Pair {
  int64_t sequence, head, query, queries, key, keys;  // `query`, `key`: the first row
  template <class T>
  Pair(const AttentionInput<T>& a, int64_t index) : sequence(index / a.plan.kv_heads), head(index % a.plan.kv_heads) {
    query = a.query_begin[sequence];
    queries = a.query_begin[sequence + 1] - query;
    key = a.key_begin[sequence];
    keys = a.key_begin[sequence + 1] - key;
  }
};

// The size of a thread's memory, which depends on the longest sequences.
struct Room {
  int64_t keys, rows, row;  // number of keys; rows of a block, and the distance between them in elements
  Room(const AttentionPlan& plan, size_t value_bytes) : keys(plan.keys), row(panels_of(keys) * kPanelColumns) {
    const int64_t fit = kBlockBytes / std::max<int64_t>(1, row * static_cast<int64_t>(value_bytes));
    rows = std::min(std::max(fit, kBlockRows), plan.queries);
    row += kPanelColumns;  // a column of a block is read: rows at a distance of a power of two share few cache lines
  }
};

// The memory of one thread: copies, packed operands and weights.
template <class T>
class Worker {
 public:
  Worker(const Context& ctx, const AttentionInput<T>& in, bool backward)
      : in_(in), plan_(in.plan), scale_(static_cast<T>(plan_.scale)), room_(plan_, sizeof(T)) {
    const int64_t rows = room_.rows, d = panels_of(plan_.size) * kPanelColumns;
    const int64_t keys = panel_size(plan_.size, room_.keys), by_key = room_.keys * d;
    const int64_t block = rows * room_.row, left = rows * plan_.size, packed = rows * d;
    const int64_t longest = std::max(room_.keys, rows) * plan_.size;
    memory_ = ctx.empty(
        {backward ? 2 * keys + by_key + 2 * (block + left + packed) + longest : keys + by_key + block + left + longest},
        dtype_of<T>);
    T* at = memory_.template data<T>();
    const auto take = [&](int64_t n) { return std::exchange(at, at + n); };
    copy_ = take(longest);
    kt_ = take(keys);
    s_ = take(block);
    q_ = take(left);
    (backward ? k_ : v_) = take(by_key);
    if (!backward) return;
    vt_ = take(keys);
    dw_ = take(block);
    dy_ = take(left);
    q_panels_ = take(packed);
    dy_panels_ = take(packed);
  }

  void forward(const AttentionForward<T>& a, int64_t index) {
    const Pair pair(in_, index);
    const Rows keys = rows_of(in_.k, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(keys.data, keys.stride, plan_.size, pair.keys, kt_);
    const Rows values = rows_of(in_.v, pair.key, pair.keys, pair.head, copy_);
    pack_panels(values.data, values.stride, pair.keys, plan_.size, v_);
    for (int64_t g = 0; g < plan_.group(); ++g) forward_head(a, pair, pair.head * plan_.group() + g);
  }

  // Writes to or adds to the pair's rows and columns of dq, dk and dv; adds to dbias.
  void backward(const AttentionBackward<T>& a, int64_t index) {
    const Pair pair(in_, index);
    const int64_t d = plan_.size;
    const Rows keys = rows_of(in_.k, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(keys.data, keys.stride, d, pair.keys, kt_);
    pack_panels(keys.data, keys.stride, pair.keys, d, k_);
    const Rows values = rows_of(in_.v, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(values.data, values.stride, d, pair.keys, vt_);
    Result<T> dk = place(a.dk, pair.key, pair.head), dv = place(a.dv, pair.key, pair.head);
    for (int64_t g = 0; g < plan_.group(); ++g) {
      backward_head(a, pair, pair.head * plan_.group() + g, dk, dv);
      dk.add = dv.add = true;
    }
  }

 private:
  // Forward for the queries of one head, with the pair's packed keys and values.
  void forward_head(const AttentionForward<T>& a, const Pair& pair, int64_t head) {
    const int64_t d = plan_.size, width = plan_.heads * d;
    for (int64_t i = 0; i < pair.queries; i += room_.rows) {
      const int64_t rows = std::min(room_.rows, pair.queries - i), n = plan_.causal ? i + rows : pair.keys;
      const int64_t first = pair.query + i;
      const Rows q = rows_of(in_.q, first, rows, head, q_);
      multiply_small<T>({{q.data, q.stride, 1}, {kt_, d}, {s_, room_.row}, rows, n, d, seen_of(i, Triangle::result)});
      for (int64_t r = 0; r < rows; ++r) {
        T* s = s_ + r * room_.row;
        const int64_t seen = plan_.causal ? i + r + 1 : n;
        a.lse[(first + r) * plan_.heads + head] = weights(s, pair.sequence, head, i + r, seen);
        if (in_.masks) drop(s, head, first + r, seen);
        round_row(s, seen, plan_.compute);
        std::fill(s + seen, s + n, T(0));
      }
      multiply_small<T>({{s_, room_.row, 1},
                         {v_, pair.keys},
                         {a.y + first * width + head * d, width},
                         rows,
                         d,
                         n,
                         seen_of(i, Triangle::lower)});
    }
  }

  void backward_head(const AttentionBackward<T>& a, const Pair& pair, int64_t head, Result<T> dk, Result<T> dv) {
    const int64_t d = plan_.size, width = plan_.heads * d;
    int64_t written = 0;  // keys that already have a gradient from earlier blocks
    for (int64_t i = 0; i < pair.queries; i += room_.rows) {
      const int64_t rows = std::min(room_.rows, pair.queries - i), n = plan_.causal ? i + rows : pair.keys;
      const int64_t first = pair.query + i, at = first * width + head * d;
      const Rows q = rows_of(in_.q, first, rows, head, q_), slopes = rounded({a.dy + at, width}, rows, dy_);
      pack_panels(q.data, q.stride, rows, d, q_panels_);
      pack_panels(slopes.data, slopes.stride, rows, d, dy_panels_);
      const Triangle scores = seen_of(i, Triangle::result);
      multiply_small<T>({{q.data, q.stride, 1}, {kt_, d}, {s_, room_.row}, rows, n, d, scores});
      multiply_small<T>({{slopes.data, slopes.stride, 1}, {vt_, d}, {dw_, room_.row}, rows, n, d, scores});
      for (int64_t r = 0; r < rows; ++r) {
        const Row row{r, pair.sequence, head, i + r, first + r, plan_.causal ? i + r + 1 : n};
        const T delta = dot(a.dy + at + r * width, a.y + at + r * width, d);
        weights_and_slopes(row, n, a.lse[(first + r) * plan_.heads + head], delta, a.dbias);
      }
      multiply_small<T>(
          {{dw_, room_.row, 1}, {k_, pair.keys}, place(a.dq, first, head), rows, d, n, seen_of(i, Triangle::lower)});
      add_keys(dw_, {q_panels_, rows}, dk, written, n);
      add_keys(s_, {dy_panels_, rows}, dv, written, n);
      written = n;
    }
    for (int64_t r = written; r < pair.keys; ++r) {  // keys that are visible to no query
      if (!dk.add) std::fill_n(dk.data + r * dk.stride, d, T(0));
      if (!dv.add) std::fill_n(dv.data + r * dv.stride, d, T(0));
    }
  }

  // Replaces a row's scores by weights, and returns the logarithm of the sum of their exponentials. Query `i` of its
  // sequence sees the first `seen` keys.
  T weights(T* s, int64_t sequence, int64_t head, int64_t i, int64_t seen) {
    if (!in_.bias) return softmax_in_place(s, scale_, seen);
    add_bias_row<T>(s, in_.bias + plan_.bias.at(sequence, head, i), scale_, seen);
    if (max_of(s, seen) == -INFINITY) {  // all keys are hidden: the weights are 0, and so is exp(s - lse) in backward
      std::fill_n(s, seen, T(0));
      return INFINITY;
    }
    return softmax_in_place(s, T(1), seen);
  }

  // Row `in_block` of a block: query `i` of its sequence, row `index` of all queries.
  struct Row {
    int64_t in_block, sequence, head, i, index, seen;
  };
  // Replaces s by the weights after dropout, W, and dw by the gradient of the scores.
  void weights_and_slopes(const Row& row, int64_t n, T lse, T delta, T* dbias) {
    T *w = s_ + row.in_block * room_.row, *dw = dw_ + row.in_block * room_.row;
    const int64_t head = row.head, seen = row.seen, bias = plan_.bias.at(row.sequence, head, row.i);
    if (in_.bias) add_bias_row<T>(w, in_.bias + bias, scale_, seen);
    exp_row<T>(w, in_.bias ? T(1) : scale_, lse, seen);
    if (in_.masks) drop(dw, head, row.index, seen);
    slope_row<T>(w, dw, delta, scale_, seen);
    if (dbias) add_scaled<T>(dbias + bias, dw, T(1) / scale_, seen);
    if (in_.masks) drop(w, head, row.index, seen);
    round_row(w, seen, plan_.compute);
    round_row(dw, seen, plan_.compute);
    std::fill(w + seen, w + n, T(0));
    std::fill(dw + seen, dw + n, T(0));
  }

  // What the queries of a block that begins with query i see of the keys.
  Triangle seen_of(int64_t i, Triangle::Kind kind) const { return {plan_.causal ? kind : Triangle::none, i}; }

  // Adds the gradients of keys [0, n) from a block: (rows, n)^T times packed (rows, d). Those of [0, written) contain
  // earlier sums, and with a causal mask they are seen by all queries of the block.
  void add_keys(const T* weights, Panels<T> packed, Result<T> to, int64_t written, int64_t n) {
    const int64_t d = plan_.size, rows = packed.depth;
    multiply_small<T>({{weights, 1, room_.row}, packed, {to.data, to.stride, true}, written, d, rows});
    multiply_small<T>({{weights + written, 1, room_.row},
                       packed,
                       {to.data + written * to.stride, to.stride, to.add},
                       n - written,
                       d,
                       rows,
                       seen_of(0, Triangle::upper)});
  }

  void drop(T* x, int64_t head, int64_t row, int64_t n) { drop_row(x, x, in_.masks[head], in_.row_ids[row], 0, n); }

  Result<T> place(const AttentionGradient<T>& g, int64_t row, int64_t head) const {
    return {g.to.data + row * g.to.stride + head * plan_.size, g.to.stride, g.add};
  }

  // Rows of one head as operands of products: in their own memory, or rounded copies in `room`.
  using Rows = HeadColumns<const T>;
  Rows rows_of(const Rows& all, int64_t row, int64_t rows, int64_t head, T* room) const {
    return rounded({all.data + row * all.stride + head * plan_.size, all.stride}, rows, room);
  }
  Rows rounded(const Rows& from, int64_t rows, T* room) const {
    if (plan_.compute != DType::bf16 && plan_.compute != DType::f16) return from;
    for (int64_t r = 0; r < rows; ++r) std::copy_n(from.data + r * from.stride, plan_.size, room + r * plan_.size);
    round_row(room, rows * plan_.size, plan_.compute);
    return {room, plan_.size};
  }

  const AttentionInput<T>& in_;
  const AttentionPlan& plan_;
  const T scale_;
  const Room room_;
  Tensor memory_;
  T *copy_ = nullptr, *kt_ = nullptr, *k_ = nullptr, *vt_ = nullptr, *v_ = nullptr;
  T *q_ = nullptr, *dy_ = nullptr, *s_ = nullptr, *dw_ = nullptr, *q_panels_ = nullptr, *dy_panels_ = nullptr;
};

// ---- all pairs

// On a device that counts: the memory of the threads that divide `items` among themselves.
template <class T>
void count_workers(const Context& ctx, const AttentionInput<T>& in, bool backward, int64_t items) {
  std::deque<Worker<T>> workers;
  while (static_cast<int64_t>(workers.size()) < std::min<int64_t>(allowed_threads(), items))
    workers.emplace_back(ctx, in, backward);
}

template <class T>
void forward(Context& ctx, const AttentionForward<T>& a) {
  const AttentionPlan& plan = a.in.plan;
  if (ctx.device.counts) return count_workers(ctx, a.in, false, plan.sequences * plan.kv_heads);
  parallel_for(plan.sequences * plan.kv_heads, 1, [&](int64_t begin, int64_t end) {
    Worker<T> worker(ctx, a.in, false);
    for (int64_t i = begin; i < end; ++i) worker.forward(a, i);
  });
}

template <class T>
void backward(Context& ctx, const AttentionBackward<T>& a) {
  const AttentionPlan& plan = a.in.plan;
  const int64_t pairs = plan.sequences * plan.kv_heads;
  if (ctx.device.counts) return count_workers(ctx, a.in, true, pairs);
  if (!a.dbias) {
    return parallel_for(pairs, 1, [&](int64_t begin, int64_t end) {
      Worker<T> worker(ctx, a.in, true);
      for (int64_t i = begin; i < end; ++i) worker.backward(a, i);
    });
  }
  // If sequences or heads share a bias, one thread processes all pairs of a bias, in order.
  const int64_t heads = plan.bias.heads > 1 ? plan.kv_heads : 1,
                sequences = plan.bias.sequences > 1 ? plan.sequences : 1;
  parallel_for(sequences * heads, 1, [&](int64_t begin, int64_t end) {
    Worker<T> worker(ctx, a.in, true);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = sequences > 1 ? i / heads * plan.kv_heads : 0;
      const int64_t last = sequences > 1 ? first + plan.kv_heads : pairs;
      for (int64_t pair = first + i % heads; pair < last; pair += heads) worker.backward(a, pair);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::ops
