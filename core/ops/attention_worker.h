// The part of an attention that one thread computes, forward and backward: one head of the keys of one sequence, with
// the heads of queries that use it. The formulas are in attention.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lmx/attention.h"
#include "lmx/math.h"
#include "lmx/rows.h"
#include "ops/common.h"
#include "ops/dropout_mask.h"
#include "ops/small_gemm.h"

namespace lmx::ops {

inline constexpr int64_t kBlockBytes = 256 << 10;  // weights of a block of queries
inline constexpr int64_t kBlockRows = 12;          // minimum number of queries of a block: two tiles

// D columns of a variable's rows, starting at `column`.
struct Operand {
  Var var;
  int64_t column = 0;
  int64_t stride() const { return var.value().dim(1); }
};

// The bias, of shape (sequences or 1, heads or 1, Q, K).
struct Bias {
  Var var;
  int64_t sequences = 1, heads = 1, queries = 0, keys = 0;
  // The position of the bias of (sequence, head) for query i and the first key.
  int64_t at(int64_t sequence, int64_t head, int64_t i) const {
    return (((sequences > 1 ? sequence : 0) * heads + (heads > 1 ? head : 0)) * queries + i) * keys;
  }
};

struct Attention {
  Operand q, k, v;
  Segments queries, keys;
  int64_t heads, kv_heads, size;  // size: of a head
  bool causal;
  double p;
  DType compute;
  Bias bias = {};
  std::vector<DropMask> masks = {};  // by head, if p > 0
  std::vector<uint64_t> row_ids = {};
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(size)); }
  int64_t pairs() const { return queries.count() * kv_heads; }
  int64_t group() const { return heads / kv_heads; }  // heads of queries that use one head of keys
};

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
  for (int64_t i = 0; i < n; ++i) dw[i] = w[i] * (dw[i] - delta) * scale;
}

LMX_SIMD inline void round_bf16(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(bfloat16(x[i]));
}
LMX_SIMD inline void round_f16(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(float16(x[i]));
}
// Rounds a row in the same way as a matrix product rounds its inputs.
inline void round_row(float* x, int64_t n, DType compute) {
  if (compute == DType::bf16) round_bf16(x, n);
  if (compute == DType::f16) round_f16(x, n);
}
inline void round_row(double*, int64_t, DType) {}

// ---- a pair

// One (sequence, head of keys), and the position of its rows.
struct Pair {
  int64_t sequence, head, query, queries, key, keys;  // `query`, `key`: the first row
  Pair(const Attention& a, int64_t index) : sequence(index / a.kv_heads), head(index % a.kv_heads) {
    const auto b = static_cast<size_t>(sequence);
    query = a.queries.begin[b];
    queries = a.queries.begin[b + 1] - query;
    key = a.keys.begin[b];
    keys = a.keys.begin[b + 1] - key;
  }
};

// The size of a thread's memory, which depends on the longest sequences.
struct Room {
  int64_t keys = 0, rows = 0, row = 0;  // number of keys; rows and columns of a block
  Room(const Attention& a, size_t value_bytes) {
    int64_t queries = 0;
    for (size_t b = 0; b + 1 < a.keys.begin.size(); ++b) {
      keys = std::max(keys, a.keys.begin[b + 1] - a.keys.begin[b]);
      queries = std::max(queries, a.queries.begin[b + 1] - a.queries.begin[b]);
    }
    row = panels_of(keys) * kPanelColumns;
    const int64_t fit = kBlockBytes / std::max<int64_t>(1, row * static_cast<int64_t>(value_bytes));
    rows = std::min(std::max(fit, kBlockRows), queries);
  }
};

// The memory of one thread: copies, packed operands and weights.
template <class T>
class Worker {
 public:
  Worker(const Context& ctx, const Attention& a, bool backward) : a_(a), room_(a, sizeof(T)) {
    const int64_t rows = room_.rows, d = panels_of(a.size) * kPanelColumns;
    const int64_t keys = panel_size(a.size, room_.keys), by_key = room_.keys * d;
    const int64_t block = rows * room_.row, left = rows * a.size, packed = rows * d;
    const int64_t longest = std::max(room_.keys, rows) * a.size;
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

  void forward(int64_t index, T* y, T* lse) {
    const Pair pair(a_, index);
    const int64_t d = a_.size;
    const RowsAt keys = rows_at(a_.k, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(keys.data, keys.stride, d, pair.keys, kt_);
    const RowsAt values = rows_at(a_.v, pair.key, pair.keys, pair.head, copy_);
    pack_panels(values.data, values.stride, pair.keys, d, v_);
    for (int64_t g = 0; g < a_.group(); ++g) forward_head(pair, pair.head * a_.group() + g, y, lse);
  }

  struct Grad {
    T* data;  // the first row and column of the pair, or of a head of its queries
    int64_t stride;
    bool add;
  };
  // y, lse: results of forward; dy: gradient of y. Writes to or adds to the pair's rows and columns of dq, dk and dv;
  // adds to dbias, which is null if it is not needed. `dq` is that of the group's first head.
  void backward(int64_t index, const T* y, const T* lse, const T* dy, Grad dq, Grad dk, Grad dv, T* dbias) {
    const Pair pair(a_, index);
    const int64_t d = a_.size;
    const RowsAt keys = rows_at(a_.k, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(keys.data, keys.stride, d, pair.keys, kt_);
    pack_panels(keys.data, keys.stride, pair.keys, d, k_);
    const RowsAt values = rows_at(a_.v, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(values.data, values.stride, d, pair.keys, vt_);
    for (int64_t g = 0; g < a_.group(); ++g) {
      backward_head(pair, pair.head * a_.group() + g, y, lse, dy, dq, dk, dv, dbias);
      dq.data += d;
      dk.add = dv.add = true;
    }
  }

 private:
  // Forward for the queries of one head, with the pair's packed keys and values.
  void forward_head(const Pair& pair, int64_t head, T* y, T* lse) {
    const int64_t d = a_.size, width = a_.heads * d;
    for (int64_t i = 0; i < pair.queries; i += room_.rows) {
      const int64_t rows = std::min(room_.rows, pair.queries - i), n = a_.causal ? i + rows : pair.keys;
      const int64_t first = pair.query + i;
      const RowsAt q = rows_at(a_.q, first, rows, head, q_);
      multiply_small<T>({q.data, q.stride, 1}, kt_, d, s_, room_.row, rows, n, d, false);
      for (int64_t r = 0; r < rows; ++r) {
        T* s = s_ + r * room_.row;
        const int64_t seen = a_.causal ? i + r + 1 : n;
        lse[(first + r) * a_.heads + head] = weights(s, pair.sequence, head, i + r, seen);
        if (a_.p > 0) drop(s, head, first + r, seen);
        round_row(s, seen, a_.compute);
        std::fill(s + seen, s + n, T(0));
      }
      multiply_small<T>({s_, room_.row, 1}, v_, pair.keys, y + first * width + head * d, width, rows, d, n, false);
    }
  }

  void backward_head(const Pair& pair, int64_t head, const T* y, const T* lse, const T* dy, Grad dq, Grad dk, Grad dv,
                     T* dbias) {
    const int64_t d = a_.size, width = a_.heads * d;
    int64_t written = 0;  // keys that already have a gradient from earlier blocks
    for (int64_t i = 0; i < pair.queries; i += room_.rows) {
      const int64_t rows = std::min(room_.rows, pair.queries - i), n = a_.causal ? i + rows : pair.keys;
      const int64_t first = pair.query + i, at = first * width + head * d;
      const RowsAt q = rows_at(a_.q, first, rows, head, q_), slopes = rows_at(dy + at, width, rows, dy_);
      pack_panels(q.data, q.stride, rows, d, q_panels_);
      pack_panels(slopes.data, slopes.stride, rows, d, dy_panels_);
      multiply_small<T>({q.data, q.stride, 1}, kt_, d, s_, room_.row, rows, n, d, false);
      multiply_small<T>({slopes.data, slopes.stride, 1}, vt_, d, dw_, room_.row, rows, n, d, false);
      for (int64_t r = 0; r < rows; ++r) {
        const Row row{r, pair.sequence, head, i + r, first + r, a_.causal ? i + r + 1 : n};
        const T delta = dot(dy + at + r * width, y + at + r * width, d);
        weights_and_slopes(row, n, lse[(first + r) * a_.heads + head], delta, dbias);
      }
      multiply_small<T>({dw_, room_.row, 1}, k_, pair.keys, dq.data + i * dq.stride, dq.stride, rows, d, n, dq.add);
      add_keys(dw_, q_panels_, dk, rows, written, n);
      add_keys(s_, dy_panels_, dv, rows, written, n);
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
    const T scale = static_cast<T>(a_.scale());
    if (!a_.bias.var.defined()) return softmax_in_place(s, scale, seen);
    add_bias_row<T>(s, bias_row(sequence, head, i), scale, seen);
    if (max_of(s, seen) == -INFINITY) {  // all keys are hidden: the weights are 0, and so is exp(s - lse) in backward
      std::fill_n(s, seen, T(0));
      return INFINITY;
    }
    return softmax_in_place(s, T(1), seen);
  }

  const T* bias_row(int64_t sequence, int64_t head, int64_t i) const {
    return a_.bias.var.value().template data<T>() + a_.bias.at(sequence, head, i);
  }

  // Row `in_block` of a block: query `i` of its sequence, row `index` of all queries.
  struct Row {
    int64_t in_block, sequence, head, i, index, seen;
  };
  // Replaces s by the weights after dropout, W, and dw by the gradient of the scores.
  void weights_and_slopes(const Row& row, int64_t n, T lse, T delta, T* dbias) {
    T *w = s_ + row.in_block * room_.row, *dw = dw_ + row.in_block * room_.row;
    const int64_t head = row.head, seen = row.seen;
    const T scale = static_cast<T>(a_.scale());
    const bool biased = a_.bias.var.defined();
    if (biased) add_bias_row<T>(w, bias_row(row.sequence, head, row.i), scale, seen);
    exp_row<T>(w, biased ? T(1) : scale, lse, seen);
    if (a_.p > 0) drop(dw, head, row.index, seen);
    slope_row<T>(w, dw, delta, scale, seen);
    if (dbias) add_scaled<T>(dbias + a_.bias.at(row.sequence, head, row.i), dw, T(1) / scale, seen);
    if (a_.p > 0) drop(w, head, row.index, seen);
    round_row(w, seen, a_.compute);
    round_row(dw, seen, a_.compute);
    std::fill(w + seen, w + n, T(0));
    std::fill(dw + seen, dw + n, T(0));
  }

  // Adds the gradients of keys [0, n) from a block: (rows, n)^T times packed (rows, d). Those of [0, written) contain
  // earlier sums.
  void add_keys(const T* weights, const T* packed, Grad to, int64_t rows, int64_t written, int64_t n) {
    const int64_t d = a_.size;
    multiply_small<T>({weights, 1, room_.row}, packed, rows, to.data, to.stride, written, d, rows, true);
    multiply_small<T>({weights + written, 1, room_.row}, packed, rows, to.data + written * to.stride, to.stride,
                      n - written, d, rows, to.add);
  }

  void drop(T* x, int64_t head, int64_t row, int64_t n) {
    drop_row(x, x, a_.masks[static_cast<size_t>(head)], a_.row_ids[static_cast<size_t>(row)], 0, n);
  }
  struct RowsAt {
    const T* data;
    int64_t stride;
  };
  // Rows of one head as operands of products: in their own memory, or rounded copies in `room`.
  RowsAt rows_at(const Operand& from, int64_t row, int64_t rows, int64_t head, T* room) const {
    const int64_t stride = from.stride();
    return rows_at(from.var.value().template data<T>() + row * stride + from.column + head * a_.size, stride, rows,
                   room);
  }
  RowsAt rows_at(const T* source, int64_t stride, int64_t rows, T* room) const {
    if (a_.compute != DType::bf16 && a_.compute != DType::f16) return {source, stride};
    for (int64_t r = 0; r < rows; ++r) std::copy_n(source + r * stride, a_.size, room + r * a_.size);
    round_row(room, rows * a_.size, a_.compute);
    return {room, a_.size};
  }

  const Attention& a_;
  Room room_;
  Tensor memory_;
  T *copy_ = nullptr, *kt_ = nullptr, *k_ = nullptr, *vt_ = nullptr, *v_ = nullptr;
  T *q_ = nullptr, *dy_ = nullptr, *s_ = nullptr, *dw_ = nullptr, *q_panels_ = nullptr, *dy_panels_ = nullptr;
};

}  // namespace lmx::ops
