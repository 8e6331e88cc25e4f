// Multi-head scaled dot-product attention (Vaswani et al. 2017) of each sequence over its own keys. For one head of
// size d:
//
//   s = q k^T / sqrt(d)     w = softmax(s)       W = w * mask / (1 - p)     y = W v
//   dv = W^T dy             dW = dy v^T          ds = w (dW * mask / (1 - p) - delta) / sqrt(d),  delta_i = dy_i . y_i
//   dq = ds k               dk = ds^T q
//
// A thread takes a (sequence, head) pair and goes through its queries in blocks whose weights stay in the cache, so
// that no more weights than a block's are ever held; backward makes them again from the logarithm of each row's sum.
// Rows are packed, nothing is padded, and what a pair computes does not depend on the threads.
#include <cmath>
#include <utility>

#include "lmx/math.h"
#include "lmx/rows.h"
#include "ops/common.h"
#include "ops/dropout_mask.h"
#include "ops/small_gemm.h"

namespace lmx {
namespace {

using namespace ops;

constexpr int64_t kBlockBytes = 256 << 10;  // weights of a block of queries
constexpr int64_t kBlockRows = 12;          // queries of a block at least: two tiles

// D columns of a variable's rows, from `column` on.
struct Operand {
  Var var;
  int64_t column = 0;
  int64_t stride() const { return var.value().dim(1); }
};

struct Attention {
  Operand q, k, v;
  Segments queries, keys;
  int64_t heads, size;  // of a head
  bool causal;
  double p;
  std::vector<DropMask> masks;  // by head, where p > 0
  std::vector<uint64_t> row_ids;
  DType compute;
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(size)); }
  int64_t pairs() const { return queries.count() * heads; }
};

// ---- rows of a block

template <class T>
LMX_SIMD void exp_row(T* x, T scale, T shift, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = fast_exp(scale * x[i] - shift);
}

template <class T>
LMX_SIMD void slope_row(const T* w, T* dw, T delta, T scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dw[i] = w[i] * (dw[i] - delta) * scale;
}

LMX_SIMD void round_bf16(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(bfloat16(x[i]));
}
LMX_SIMD void round_f16(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(float16(x[i]));
}
// What a matrix product makes of its inputs.
void round_row(float* x, int64_t n, DType compute) {
  if (compute == DType::bf16) round_bf16(x, n);
  if (compute == DType::f16) round_f16(x, n);
}
void round_row(double*, int64_t, DType) {}

// ---- a pair

// One (sequence, head): where its rows lie.
struct Pair {
  int64_t head, query, queries, key, keys;  // `query`, `key`: the first row
  Pair(const Attention& a, int64_t index) : head(index % a.heads) {
    const auto b = static_cast<size_t>(index / a.heads);
    query = a.queries.begin[b];
    queries = a.queries.begin[b + 1] - query;
    key = a.keys.begin[b];
    keys = a.keys.begin[b + 1] - key;
  }
};

// The longest sequences, by which a thread's room is measured.
struct Room {
  int64_t keys = 0, rows = 0, row = 0;  // keys; queries and columns of a block
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

// Copies, packed operands and weights of one thread.
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
    const int64_t d = a_.size, width = a_.heads * d;
    const RowsAt keys = rows_at(a_.k, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(keys.data, keys.stride, d, pair.keys, kt_);
    const RowsAt values = rows_at(a_.v, pair.key, pair.keys, pair.head, copy_);
    pack_panels(values.data, values.stride, pair.keys, d, v_);
    for (int64_t i = 0; i < pair.queries; i += room_.rows) {
      const int64_t rows = std::min(room_.rows, pair.queries - i), n = a_.causal ? i + rows : pair.keys;
      const int64_t first = pair.query + i;
      const RowsAt q = rows_at(a_.q, first, rows, pair.head, q_);
      multiply_small<T>({q.data, q.stride, 1}, kt_, d, s_, room_.row, rows, n, d, false);
      for (int64_t r = 0; r < rows; ++r) {
        T* s = s_ + r * room_.row;
        const int64_t seen = a_.causal ? i + r + 1 : n;
        lse[(first + r) * a_.heads + pair.head] = softmax_in_place(s, static_cast<T>(a_.scale()), seen);
        if (a_.p > 0) drop(s, pair.head, first + r, seen);
        round_row(s, seen, a_.compute);
        std::fill(s + seen, s + n, T(0));
      }
      multiply_small<T>({s_, room_.row, 1}, v_, pair.keys, y + first * width + pair.head * d, width, rows, d, n, false);
    }
  }

  struct Grad {
    T* data;  // the pair's first row and column
    int64_t stride;
    bool add;
  };
  // y, lse: what forward made; dy: of y. Writes or adds to the pair's rows and columns of dq, dk and dv.
  void backward(int64_t index, const T* y, const T* lse, const T* dy, Grad dq, Grad dk, Grad dv) {
    const Pair pair(a_, index);
    const int64_t d = a_.size, width = a_.heads * d;
    const RowsAt keys = rows_at(a_.k, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(keys.data, keys.stride, d, pair.keys, kt_);
    pack_panels(keys.data, keys.stride, pair.keys, d, k_);
    const RowsAt values = rows_at(a_.v, pair.key, pair.keys, pair.head, copy_);
    pack_panels_transposed(values.data, values.stride, d, pair.keys, vt_);
    int64_t written = 0;  // keys that have a gradient from the blocks before
    for (int64_t i = 0; i < pair.queries; i += room_.rows) {
      const int64_t rows = std::min(room_.rows, pair.queries - i), n = a_.causal ? i + rows : pair.keys;
      const int64_t first = pair.query + i, at = first * width + pair.head * d;
      const RowsAt q = rows_at(a_.q, first, rows, pair.head, q_), slopes = rows_at(dy + at, width, rows, dy_);
      pack_panels(q.data, q.stride, rows, d, q_panels_);
      pack_panels(slopes.data, slopes.stride, rows, d, dy_panels_);
      multiply_small<T>({q.data, q.stride, 1}, kt_, d, s_, room_.row, rows, n, d, false);
      multiply_small<T>({slopes.data, slopes.stride, 1}, vt_, d, dw_, room_.row, rows, n, d, false);
      for (int64_t r = 0; r < rows; ++r) {
        const T delta = dot(dy + at + r * width, y + at + r * width, d);
        weights_and_slopes(r, pair.head, first + r, a_.causal ? i + r + 1 : n, n,
                           lse[(first + r) * a_.heads + pair.head], delta);
      }
      multiply_small<T>({dw_, room_.row, 1}, k_, pair.keys, dq.data + i * dq.stride, dq.stride, rows, d, n, dq.add);
      add_keys(dw_, q_panels_, dk, rows, written, n);
      add_keys(s_, dy_panels_, dv, rows, written, n);
      written = n;
    }
    for (int64_t r = written; r < pair.keys; ++r) {  // keys that no query sees
      if (!dk.add) std::fill_n(dk.data + r * dk.stride, d, T(0));
      if (!dv.add) std::fill_n(dv.data + r * dv.stride, d, T(0));
    }
  }

 private:
  // Row r of the block: s becomes the dropped weights W, dw the gradient of the scores.
  void weights_and_slopes(int64_t r, int64_t head, int64_t row, int64_t seen, int64_t n, T lse, T delta) {
    T *w = s_ + r * room_.row, *dw = dw_ + r * room_.row;
    const T scale = static_cast<T>(a_.scale());
    exp_row<T>(w, scale, lse, seen);
    if (a_.p > 0) drop(dw, head, row, seen);
    slope_row<T>(w, dw, delta, scale, seen);
    if (a_.p > 0) drop(w, head, row, seen);
    round_row(w, seen, a_.compute);
    round_row(dw, seen, a_.compute);
    std::fill(w + seen, w + n, T(0));
    std::fill(dw + seen, dw + n, T(0));
  }

  // Gradients of keys [0, n) from a block: (rows, n)^T times packed (rows, d). Those of [0, written) hold sums already.
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
  // Rows of one head as products take them: where they lie, or rounded in `room`.
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

// ---- the op

// Gradients of q, k and v; operands that are one variable share a tensor.
template <class T>
struct Grads {
  Tape::Sink q, k, v;
  Grads(Context& ctx, const Attention& a) {
    const auto sink = [&](const Operand& o) {
      if (o.var.requires_grad()) return Tape::sink(ctx, o.var);
      return Tape::Sink{o.var.value().like(MemClass::activations), 0.0f};
    };
    q = sink(a.q);
    k = a.k.var.same(a.q.var) ? q : sink(a.k);
    v = a.v.var.same(a.k.var) ? k : a.v.var.same(a.q.var) ? q : sink(a.v);
    // The same columns: all three add up.
    const auto meet = [](const Operand& x, const Operand& y) { return x.var.same(y.var) && x.column == y.column; };
    if (!meet(a.q, a.k) && !meet(a.k, a.v) && !meet(a.q, a.v)) return;
    for (Tape::Sink* s : {&q, &k, &v}) {
      if (s->beta == 0) s->grad.zero();
    }
    for (Tape::Sink* s : {&q, &k, &v}) s->beta = 1;
  }
};

template <class T>
void backward(Context& ctx, const Attention& a, const Var& out, const Tensor& lse) {
  const Tensor dy = Tape::grad_of(out);
  Grads<T> grads(ctx, a);
  const auto place = [&](Tape::Sink& s, const Operand& o, int64_t row, int64_t head) {
    return typename Worker<T>::Grad{s.grad.template data<T>() + row * o.stride() + o.column + head * a.size, o.stride(),
                                    s.beta != 0};
  };
  parallel_for(a.pairs(), 1, [&](int64_t begin, int64_t end) {
    Worker<T> worker(ctx, a, true);
    for (int64_t i = begin; i < end; ++i) {
      const Pair pair(a, i);
      worker.backward(i, out.value().data<T>(), lse.data<T>(), dy.data<T>(), place(grads.q, a.q, pair.query, pair.head),
                      place(grads.k, a.k, pair.key, pair.head), place(grads.v, a.v, pair.key, pair.head));
    }
  });
}

Var run(Context& ctx, Attention a) {
  const Tensor& q = a.q.var.value();
  Tensor y = ctx.empty({q.dim(0), a.heads * a.size}, q.dtype());
  Tensor lse = ctx.empty({q.dim(0), a.heads}, q.dtype());
  with_values("attention", q, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(a.pairs(), 1, [&](int64_t begin, int64_t end) {
      Worker<T> worker(ctx, a, false);
      for (int64_t i = begin; i < end; ++i) worker.forward(i, y.data<T>(), lse.data<T>());
    });
  });
  Var out(y);
  if (recording(ctx, {&a.q.var, &a.k.var, &a.v.var})) {
    // A variable that is all three operands is one use of it.
    std::vector<Var> inputs{a.q.var};
    for (const Var& v : {a.k.var, a.v.var}) {
      if (std::none_of(inputs.begin(), inputs.end(), [&](const Var& u) { return u.same(v); })) inputs.push_back(v);
    }
    ctx.tape->record("attention", std::move(inputs), {out}, [&ctx, a = std::move(a), out, lse](Tape&) {
      with_values("attention", lse, [&](auto zero) { backward<decltype(zero)>(ctx, a, out, lse); });
    });
  }
  return out;
}

// ---- checks

void check_segments(const char* what, const Segments& s, const Tensor& rows) {
  const bool ascends = !s.begin.empty() && s.begin.front() == 0 && std::is_sorted(s.begin.begin(), s.begin.end());
  if (ascends && s.begin.back() == rows.dim(0)) return;
  throw UserError(str("[attention] ", what, " end at row ", s.begin.empty() ? int64_t{0} : s.begin.back(), " of ",
                      rows.shape(), ": sequences must follow each other from row 0 to the last"));
}

void check(const Attention& a, size_t row_ids) {
  const Tensor &q = a.q.var.value(), &k = a.k.var.value(), &v = a.v.var.value();
  check_same_type("attention", "q", q, "k", k);
  check_same_type("attention", "q", q, "v", v);
  check_segments("queries", a.queries, q);
  check_segments("keys", a.keys, k);
  if (a.queries.count() != a.keys.count() || (a.causal && a.queries.begin != a.keys.begin)) {
    throw UserError(str(
        "[attention] ", a.queries.count(), " sequences of ", q.dim(0), " queries and ", a.keys.count(), " of ",
        k.dim(0), " keys: ", a.causal ? "a causal attention has a key for each query" : "the numbers must be equal"));
  }
  for (int64_t b = 0; b < a.keys.count(); ++b) {
    const auto i = static_cast<size_t>(b);
    if (a.keys.begin[i] == a.keys.begin[i + 1] && a.queries.begin[i] != a.queries.begin[i + 1]) {
      throw UserError(str("[attention] sequence ", b, " has ", a.queries.begin[i + 1] - a.queries.begin[i],
                          " queries and no keys: there is nothing to attend to"));
    }
  }
  if (!(a.p >= 0 && a.p < 1)) throw UserError(str("[attention] dropout ", a.p, ": must be in [0, 1)"));
  if (a.p > 0 && static_cast<int64_t>(row_ids) != q.dim(0)) {
    throw UserError(str("[attention] ", row_ids, " row ids for q ", q.shape(), ": one for each row expected"));
  }
}

int64_t head_size(const Shape& shape, int64_t width, int64_t heads) {
  if (heads < 1 || width % heads != 0) {
    throw UserError(str("[attention] ", heads, " heads for ", width, " columns of ", shape,
                        ": the columns must divide evenly over the heads"));
  }
  return width / heads;
}

// `parts` operands side by side in the columns of x: the width of one.
int64_t part_width(const char* name, const Var& x, int64_t parts) {
  const Shape& s = x.shape();
  if (s.rank() == 2 && s[1] > 0 && s[1] % parts == 0) return s[1] / parts;
  const char* wanted = parts == 1 ? "(rows, D)" : parts == 2 ? "(rows, 2 D)" : "(rows, 3 D)";
  throw UserError(str("[attention] ", name, ' ', s, ": ", wanted, " expected"));
}

struct Layout {
  const Segments &queries, &keys;
  int64_t heads;
  bool causal;
};
struct Noise {
  double p;
  RandomKey key;
  const std::vector<uint64_t>& row_ids;
};

struct Operands {
  Operand q, k, v;
};

Var attend(Context& ctx, const Operands& x, int64_t width, const Layout& layout, const Noise& noise) {
  const int64_t size = head_size(x.q.var.shape(), width, layout.heads);
  Attention a{x.q,     x.k, x.v, layout.queries, layout.keys, layout.heads, size, layout.causal,
              noise.p, {},  {},  ctx.compute};
  if (!ctx.training && a.p > 0 && a.p < 1) a.p = 0;
  check(a, noise.row_ids.size());
  if (a.p > 0) {
    a.row_ids = noise.row_ids;
    for (int64_t h = 0; h < a.heads; ++h) a.masks.emplace_back(a.p, noise.key.fold(static_cast<uint64_t>(h)));
  }
  return run(ctx, std::move(a));
}

}  // namespace

Segments Segments::of(std::span<const int64_t> lengths) {
  Segments s;
  s.begin.reserve(lengths.size() + 1);
  s.begin.push_back(0);
  for (const int64_t n : lengths) s.begin.push_back(s.begin.back() + n);
  return s;
}

Var attention(Context& ctx, const Var& q, const Var& k, const Var& v, const Segments& queries, const Segments& keys,
              int64_t heads, bool causal, double p, RandomKey key, const std::vector<uint64_t>& row_ids) {
  const int64_t width = part_width("q", q, 1);
  if (k.shape() != v.shape() || part_width("k", k, 1) != width) {
    throw UserError(str("[attention] q ", q.shape(), ", k ", k.shape(), " and v ", v.shape(),
                        ": (N, D), (M, D) and (M, D) expected"));
  }
  return attend(ctx, {{q, 0}, {k, 0}, {v, 0}}, width, {queries, keys, heads, causal}, {p, key, row_ids});
}

Var attention(Context& ctx, const Var& qkv, const Segments& rows, int64_t heads, bool causal, double p, RandomKey key,
              const std::vector<uint64_t>& row_ids) {
  const int64_t width = part_width("qkv", qkv, 3);
  return attend(ctx, {{qkv, 0}, {qkv, width}, {qkv, 2 * width}}, width, {rows, rows, heads, causal}, {p, key, row_ids});
}

Var attention(Context& ctx, const Var& q, const Var& kv, const Segments& queries, const Segments& keys, int64_t heads,
              double p, RandomKey key, const std::vector<uint64_t>& row_ids) {
  const int64_t width = part_width("q", q, 1);
  if (part_width("kv", kv, 2) != width) {
    throw UserError(str("[attention] q ", q.shape(), " and kv ", kv.shape(), ": (N, D) and (M, 2 D) expected"));
  }
  return attend(ctx, {{q, 0}, {kv, 0}, {kv, width}}, width, {queries, keys, heads, false}, {p, key, row_ids});
}

}  // namespace lmx
