// A thread processes one head of the keys of one sequence. For each head of queries that uses these keys, it processes
// the queries in blocks whose weights stay in the cache, so that only the weights of one block are stored at a time.
#include "ops/attention/attention.h"

#include <cmath>
#include <deque>
#include <limits>
#include <type_traits>
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
//
// Rows are computed in whole vectors of kPanelColumns columns. A query sees the first `seen` of the `width` columns of
// a row, 0 < seen. The others, all in the last panel, have the score -Inf, weight 0 and gradient 0.

// Sets the columns of a row that the query does not see.
template <class T>
[[gnu::always_inline]] inline void fill_unseen(T* row, int64_t seen, int64_t width, T value) {
  T* last = row + width - kPanelColumns;
  for (int64_t i = 0; i < kPanelColumns; ++i) last[i] = width - kPanelColumns + i < seen ? last[i] : value;
}

// Replaces a row's scores by weights, and returns the logarithm of the sum of their exponentials. If a bias has hidden
// all columns, the weights are 0 and the result is Inf; scores that overflowed to -Inf give NaN.
template <class T>
LMX_SIMD T weights_of_scores(T* s, T scale, bool biased, int64_t seen, int64_t width) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  fill_unseen(s, seen, width, -kInfinity);
  T most = -kInfinity, sum = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < width; ++i) most = s[i] > most ? s[i] : most;
  const bool hidden = biased && most == -kInfinity;
  const T shift = hidden ? T(0) : scale * most;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) {
    s[i] = fast_exp(scale * s[i] - shift);
    sum += s[i];
  }
  const T factor = hidden ? T(0) : T(1) / sum;
  for (int64_t i = 0; i < width; ++i) s[i] *= factor;
  return hidden ? kInfinity : shift + std::log(sum);
}

// One row: exp(scale s - lse) is a weight, and the gradients of the scores contain the factor slope_scale.
template <class T>
struct RowOfWeights {
  T scale, lse, delta, slope_scale;
  int64_t seen, width;
};

// Replaces the scores s by the weights after dropout, and dw by the gradient of the scores. `factors`: those of
// dropout, read if kDrops.
template <bool kDrops, class T>
LMX_SIMD void weights_and_slopes(T* __restrict s, T* __restrict dw, const T* __restrict factors,
                                 const RowOfWeights<T>& row) {
  const T scale = row.scale, lse = row.lse, delta = row.delta, slope_scale = row.slope_scale;
  for (int64_t i = 0; i < row.width; ++i) {
    const T w = fast_exp(scale * s[i] - lse), factor = kDrops ? factors[i] : T(1);
    dw[i] = score_slope(w, factor * dw[i], delta, slope_scale);
    s[i] = factor * w;
  }
  fill_unseen(s, row.seen, row.width, T(0));
  fill_unseen(dw, row.seen, row.width, T(0));
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

// delta_i = x_i . y_i
template <class T>
LMX_SIMD void dots_of_rows(HeadColumns<const T> x, HeadColumns<const T> y, int64_t rows, int64_t columns, T* deltas) {
  for (int64_t r = 0; r < rows; ++r) {
    const T *a = x.data + r * x.stride, *b = y.data + r * y.stride;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < columns; ++i) sum += a[i] * b[i];
    deltas[r] = sum;
  }
}

template <class Narrow>
[[gnu::always_inline]] inline void round(HeadColumns<const float> from, HeadColumns<float> to, int64_t rows,
                                         int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i)
      to.data[r * to.stride + i] = static_cast<float>(Narrow(from.data[r * from.stride + i]));
}
LMX_SIMD void round_bf16(HeadColumns<const float> from, HeadColumns<float> to, int64_t rows, int64_t columns) {
  round<bfloat16>(from, to, rows, columns);
}
LMX_SIMD void round_f16(HeadColumns<const float> from, HeadColumns<float> to, int64_t rows, int64_t columns) {
  round<float16>(from, to, rows, columns);
}

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
  Room(const AttentionPlan& plan, size_t value_bytes) : keys(plan.keys), row(whole_panels(keys)) {
    const int64_t fit = kBlockBytes / std::max<int64_t>(1, row * static_cast<int64_t>(value_bytes));
    rows = std::min(std::max(fit, kBlockRows), plan.queries);
    row += kPanelColumns;  // a column of a block is read: rows at a distance of a power of two share few cache lines
  }
};

// The memory of one thread: copies, packed operands and weights. E: the elements of the operands of products.
template <class T, class E>
class Worker {
 public:
  Worker(const Context& ctx, const AttentionInput<T>& in, bool backward)
      : in_(in), plan_(in.plan), scale_(static_cast<T>(plan_.scale)), room_(plan_, sizeof(T)) {
    static_assert(sizeof(T) == sizeof(E));
    const int64_t rows = room_.rows, size = elements_of<E>(plan_.size), d = whole_panels(plan_.size);
    const int64_t keys = panel_size(size, room_.keys), by_key = elements_of<E>(room_.keys) * d;
    const int64_t block = rows * room_.row, left = rows * size, packed = elements_of<E>(rows) * d;
    const int64_t longest = std::max(room_.keys, rows) * plan_.size,
                  pairs = kPairs ? elements_of<E>(rows) * room_.row : 0;
    const int64_t twice = backward ? 2 : 1;
    memory_ = ctx.empty(
        {twice * (keys + block + left) + by_key + longest + pairs + (backward ? 2 * packed + room_.row + rows : 0)},
        dtype_of<T>);
    T* at = memory_.template data<T>();
    const auto take = [&](int64_t n) { return std::exchange(at, at + n); };
    const auto operands = [&](int64_t n) { return reinterpret_cast<E*>(take(n)); };
    copy_ = operands(longest);
    kt_ = operands(keys);
    s_ = take(block);
    pairs_ = operands(pairs);
    q_ = operands(left);
    (backward ? k_ : v_) = operands(by_key);
    if (!backward) return;
    vt_ = operands(keys);
    dw_ = take(block);
    dy_ = operands(left);
    q_panels_ = operands(packed);
    dy_panels_ = operands(packed);
    factors_ = take(room_.row);
    deltas_ = take(rows);
  }

  void forward(const AttentionForward<T>& a, int64_t index) {
    const Pair pair(in_, index);
    pack_transposed(in_.k, pair, kt_);
    pack(rows_of(in_.v, pair.key, pair.head), pair.keys, v_);
    for (int64_t g = 0; g < plan_.group(); ++g) forward_head(a, pair, pair.head * plan_.group() + g);
  }

  // Writes to or adds to the pair's rows and columns of dq, dk and dv; adds to dbias.
  void backward(const AttentionBackward<T>& a, int64_t index) {
    const Pair pair(in_, index);
    pack_transposed(in_.k, pair, kt_);
    pack(rows_of(in_.k, pair.key, pair.head), pair.keys, k_);
    pack_transposed(in_.v, pair, vt_);
    Result<T> dk = place(a.dk, pair.key, pair.head), dv = place(a.dv, pair.key, pair.head);
    for (int64_t g = 0; g < plan_.group(); ++g) {
      backward_head(a, pair, pair.head * plan_.group() + g, dk, dv);
      dk.add = dv.add = true;
    }
  }

 private:
  static constexpr bool kPairs = !std::is_same_v<T, E>;

  // Forward for the queries of one head, with the pair's packed keys and values.
  void forward_head(const AttentionForward<T>& a, const Pair& pair, int64_t head) {
    const int64_t d = plan_.size, size = elements_of<E>(d), width = plan_.heads * d;
    for (int64_t i = 0; i < pair.queries; i += room_.rows) {
      const int64_t rows = std::min(room_.rows, pair.queries - i), n = plan_.causal ? i + rows : pair.keys;
      const int64_t first = pair.query + i;
      const Left<E> q = left_of(rows_of(in_.q, first, head), rows, q_);
      multiply_small<E>({q, {kt_, size}, {s_, room_.row}, rows, whole_panels(n), size, seen_of(i, Triangle::result)});
      for (int64_t r = 0; r < rows; ++r) {
        T* s = s_ + r * room_.row;
        const int64_t seen = plan_.causal ? i + r + 1 : n, columns = whole_panels(seen);
        const T scale = add_bias(s, pair.sequence, head, i + r, seen);
        a.lse[(first + r) * plan_.heads + head] = weights_of_scores(s, scale, in_.bias != nullptr, seen, columns);
        if (in_.masks) drop(s, head, first + r, columns);
        if (columns < n) std::fill(s + columns, s + n, T(0));
      }
      round_block(s_, rows, n);
      multiply_small<E>({left_by_row(s_, rows, n),
                         {v_, elements_of<E>(pair.keys)},
                         {a.y + first * width + head * d, width},
                         rows,
                         d,
                         elements_of<E>(n),
                         seen_of(i, Triangle::lower)});
    }
  }

  void backward_head(const AttentionBackward<T>& a, const Pair& pair, int64_t head, Result<T> dk, Result<T> dv) {
    const int64_t d = plan_.size, size = elements_of<E>(d), width = plan_.heads * d;
    int64_t written = 0;  // keys that already have a gradient from earlier blocks
    for (int64_t i = 0; i < pair.queries; i += room_.rows) {
      const int64_t rows = std::min(room_.rows, pair.queries - i), n = plan_.causal ? i + rows : pair.keys;
      const int64_t first = pair.query + i, at = first * width + head * d, columns = whole_panels(n);
      const Rows q = rows_of(in_.q, first, head), slopes{a.dy + at, width};
      pack(q, rows, q_panels_);
      pack(slopes, rows, dy_panels_);
      const Triangle scores = seen_of(i, Triangle::result);
      multiply_small<E>({left_of(q, rows, q_), {kt_, size}, {s_, room_.row}, rows, columns, size, scores});
      multiply_small<E>({left_of(slopes, rows, dy_), {vt_, size}, {dw_, room_.row}, rows, columns, size, scores});
      dots_of_rows<T>(slopes, {a.y + at, width}, rows, d, deltas_);
      for (int64_t r = 0; r < rows; ++r) {
        const Row row{r, pair.sequence, head, i + r, first + r, plan_.causal ? i + r + 1 : n};
        differentiate(row, n, a.lse[(first + r) * plan_.heads + head], deltas_[r], a.dbias);
      }
      round_block(s_, rows, n);
      round_block(dw_, rows, n);
      add_keys(left_by_column(s_, rows, n), {dy_panels_, elements_of<E>(rows)}, dv, written, n);
      add_keys(left_by_column(dw_, rows, n), {q_panels_, elements_of<E>(rows)}, dk, written, n);
      multiply_small<E>({left_by_row(dw_, rows, n),
                         {k_, elements_of<E>(pair.keys)},
                         place(a.dq, first, head),
                         rows,
                         d,
                         elements_of<E>(n),
                         seen_of(i, Triangle::lower)});
      written = n;
    }
    for (int64_t r = written; r < pair.keys; ++r) {  // keys that are visible to no query
      if (!dk.add) std::fill_n(dk.data + r * dk.stride, d, T(0));
      if (!dv.add) std::fill_n(dv.data + r * dv.stride, d, T(0));
    }
  }

  // Adds the bias to a row's scores, if there is one. Query `i` of its sequence sees the first `seen` keys. Returns the
  // factor that the result still needs.
  T add_bias(T* s, int64_t sequence, int64_t head, int64_t i, int64_t seen) const {
    if (!in_.bias) return scale_;
    add_bias_row<T>(s, in_.bias + plan_.bias.at(sequence, head, i), scale_, seen);
    return T(1);
  }

  // Row `in_block` of a block: query `i` of its sequence, row `index` of all queries.
  struct Row {
    int64_t in_block, sequence, head, i, index, seen;
  };
  // Replaces the scores by the weights after dropout, W, and dw by the gradient of the scores.
  void differentiate(const Row& row, int64_t n, T lse, T delta, T* dbias) {
    T *w = s_ + row.in_block * room_.row, *dw = dw_ + row.in_block * room_.row;
    const int64_t seen = row.seen, width = whole_panels(seen);
    const T scale = add_bias(w, row.sequence, row.head, row.i, seen);
    const RowOfWeights<T> of_row{scale, lse, delta, scale_, seen, width};
    if (in_.masks) {
      std::fill_n(factors_, width, T(1));
      drop(factors_, row.head, row.index, width);
      weights_and_slopes<true>(w, dw, factors_, of_row);
    } else {
      weights_and_slopes<false>(w, dw, factors_, of_row);
    }
    if (dbias) add_scaled<T>(dbias + plan_.bias.at(row.sequence, row.head, row.i), dw, T(1) / scale_, seen);
    if (width >= n) return;
    std::fill(w + width, w + n, T(0));
    std::fill(dw + width, dw + n, T(0));
  }

  // What the queries of a block that begins with query i see of the keys.
  Triangle seen_of(int64_t i, Triangle::Kind kind) const { return {plan_.causal ? kind : Triangle::none, i}; }

  // Adds the gradients of keys [0, n) from a block: weights (n, rows) times packed (rows, d). Those of [0, written)
  // contain earlier sums, and with a causal mask they are seen by all queries of the block.
  void add_keys(Left<E> weights, Panels<E> packed, Result<T> to, int64_t written, int64_t n) {
    const int64_t d = plan_.size, rows = packed.depth;
    multiply_small<E>({weights, packed, {to.data, to.stride, true}, written, d, rows});
    multiply_small<E>({{weights.data + written * weights.row, weights.row, weights.column},
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

  // ---- operands: the numbers themselves, or copies that are rounded or consist of pairs

  using Rows = HeadColumns<const T>;
  Rows rows_of(const Rows& all, int64_t row, int64_t head) const {
    return {all.data + row * all.stride + head * plan_.size, all.stride};
  }
  // `rows` rows of a head as elements along the row. `room`: memory for a copy.
  HeadColumns<const E> along_rows(const Rows& from, int64_t rows, E* room) const {
    if constexpr (kPairs) {
      const int64_t size = elements_of<E>(plan_.size);
      for (int64_t r = 0; r < rows; ++r) pairs_of_row(from.data + r * from.stride, room + r * size, plan_.size);
      return {room, size};
    } else {
      if (!rounds()) return from;
      round_rows(from, {room, plan_.size}, rows, plan_.size);
      return {room, plan_.size};
    }
  }
  // The left-hand side (rows, d) of a product.
  Left<E> left_of(const Rows& from, int64_t rows, E* room) const {
    const HeadColumns<const E> elements = along_rows(from, rows, room);
    return {elements.data, elements.stride, 1};
  }
  // The right-hand side (d, keys).
  void pack_transposed(const Rows& all, const Pair& pair, E* to) {
    const HeadColumns<const E> rows = along_rows(rows_of(all, pair.key, pair.head), pair.keys, copy_);
    pack_panels_transposed(rows.data, rows.stride, elements_of<E>(plan_.size), pair.keys, to);
  }
  // The right-hand side (rows, d).
  void pack(const Rows& from, int64_t rows, E* to) {
    if constexpr (kPairs) {
      pair_rows(from.data, from.stride, rows, plan_.size, {copy_, plan_.size});
      pack_panels<E>(copy_, plan_.size, elements_of<E>(rows), plan_.size, to);
    } else {
      const HeadColumns<const E> elements = along_rows(from, rows, copy_);
      pack_panels(elements.data, elements.stride, rows, plan_.size, to);
    }
  }
  // A block of weights (rows, n), and its transpose (n, rows), as left-hand sides. Each is valid until the next one.
  Left<E> left_by_row(const T* block, int64_t rows, int64_t n) {
    if constexpr (kPairs) {
      const int64_t stride = room_.row / 2;
      for (int64_t r = 0; r < rows; ++r) pairs_of_row(block + r * room_.row, pairs_ + r * stride, n);
      return {pairs_, stride, 1};
    } else {
      return {block, room_.row, 1};
    }
  }
  Left<E> left_by_column(const T* block, int64_t rows, int64_t n) {
    if constexpr (kPairs) {
      pair_rows(block, room_.row, rows, n, {pairs_, room_.row});
      return {pairs_, 1, room_.row};
    } else {
      return {block, 1, room_.row};
    }
  }
  // Pairs of neighbouring rows.
  static void pair_rows(const T* from, int64_t stride, int64_t rows, int64_t columns, HeadColumns<E> to) {
    for (int64_t r = 0; r + 1 < rows; r += 2, from += 2 * stride, to.data += to.stride)
      pairs_of_rows(from, from + stride, to.data, columns);
    if (rows % 2 != 0) pairs_of_rows(from, nullptr, to.data, columns);
  }

  bool rounds() const {
    return std::is_same_v<T, float> && !kPairs && (plan_.compute == DType::bf16 || plan_.compute == DType::f16);
  }
  void round_block(T* block, int64_t rows, int64_t columns) const {
    if (rounds()) round_rows({block, room_.row}, {block, room_.row}, rows, columns);
  }
  // Rounds in the same way as a matrix product rounds its inputs. `to` may be `from`.
  void round_rows(const Rows& from, HeadColumns<T> to, int64_t rows, int64_t columns) const {
    if constexpr (std::is_same_v<T, float>)
      plan_.compute == DType::bf16 ? round_bf16(from, to, rows, columns) : round_f16(from, to, rows, columns);
  }

  const AttentionInput<T>& in_;
  const AttentionPlan& plan_;
  const T scale_;
  const Room room_;
  Tensor memory_;
  E *copy_ = nullptr, *kt_ = nullptr, *k_ = nullptr, *vt_ = nullptr, *v_ = nullptr, *pairs_ = nullptr;
  E *q_ = nullptr, *dy_ = nullptr, *q_panels_ = nullptr, *dy_panels_ = nullptr;
  T *s_ = nullptr, *dw_ = nullptr, *factors_ = nullptr, *deltas_ = nullptr;
};

// ---- all pairs

// On a device that counts: the memory of the threads that divide `items` among themselves.
template <class T, class E>
void count_workers(const Context& ctx, const AttentionInput<T>& in, bool backward, int64_t items) {
  std::deque<Worker<T, E>> workers;
  while (static_cast<int64_t>(workers.size()) < std::min<int64_t>(allowed_threads(), items))
    workers.emplace_back(ctx, in, backward);
}

template <class T, class E>
void run_forward(Context& ctx, const AttentionForward<T>& a) {
  const AttentionPlan& plan = a.in.plan;
  if (ctx.device.counts) return count_workers<T, E>(ctx, a.in, false, plan.sequences * plan.kv_heads);
  parallel_for(plan.sequences * plan.kv_heads, 1, [&](int64_t begin, int64_t end) {
    Worker<T, E> worker(ctx, a.in, false);
    for (int64_t i = begin; i < end; ++i) worker.forward(a, i);
  });
}

template <class T, class E>
void run_backward(Context& ctx, const AttentionBackward<T>& a) {
  const AttentionPlan& plan = a.in.plan;
  const int64_t pairs = plan.sequences * plan.kv_heads;
  if (ctx.device.counts) return count_workers<T, E>(ctx, a.in, true, pairs);
  // Whether several pairs add to one element of a gradient: if the columns of q are those of k or v, and a column
  // belongs to different heads of both, or a row to different sequences.
  const bool shares = a.dq.same(a.dk) || a.dq.same(a.dv), mixes = shares && plan.heads != plan.kv_heads,
             crosses = shares && (mixes || a.in.query_begin != a.in.key_begin);
  if (!a.dbias && !crosses) {
    return parallel_for(pairs, 1, [&](int64_t begin, int64_t end) {
      Worker<T, E> worker(ctx, a.in, true);
      for (int64_t i = begin; i < end; ++i) worker.backward(a, i);
    });
  }
  // One thread processes all pairs that share elements or a bias, in order.
  const int64_t heads = !mixes && (!a.dbias || plan.bias.heads > 1) ? plan.kv_heads : 1,
                sequences = !crosses && plan.bias.sequences > 1 ? plan.sequences : 1;
  parallel_for(sequences * heads, 1, [&](int64_t begin, int64_t end) {
    Worker<T, E> worker(ctx, a.in, true);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = sequences > 1 ? i / heads * plan.kv_heads : 0;
      const int64_t last = sequences > 1 ? first + plan.kv_heads : pairs;
      for (int64_t pair = first + i % heads; pair < last; pair += heads) worker.backward(a, pair);
    }
  });
}

// Calls f(E{}) for the elements of operands.
template <class T, class F>
void with_elements(const AttentionPlan& plan, const F& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (multiplies_bf16(plan.compute)) return f(Bf16Pair());
  }
  f(T());
}
template <class T>
void forward(Context& ctx, const AttentionForward<T>& a) {
  with_elements<T>(a.in.plan, [&](auto element) { run_forward<T, decltype(element)>(ctx, a); });
}
template <class T>
void backward(Context& ctx, const AttentionBackward<T>& a) {
  with_elements<T>(a.in.plan, [&](auto element) { run_backward<T, decltype(element)>(ctx, a); });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::ops
