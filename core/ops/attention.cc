// Multi-head scaled dot-product attention (Vaswani et al. 2017) of each sequence over its own keys. For one head of
// size d:
//
//   s = q k^T / sqrt(d) + bias     w = softmax(s)       W = w * mask / (1 - p)     y = W v
//   dv = W^T dy     dW = dy v^T     db = w (dW * mask / (1 - p) - delta),  delta_i = dy_i . y_i     ds = db / sqrt(d)
//   dq = ds k       dk = ds^T q     dbias: the sum of db over the sequences and heads that share the bias
//
// A thread processes one head of the keys of one sequence. For each head of queries that uses these keys, it processes
// the queries in blocks whose weights stay in the cache, so that only the weights of one block are stored at a time.
// Backward computes the weights again from the logarithm of each row's sum. Rows are packed without padding, and no
// result depends on the number of threads.
#include "lmx/attention.h"
#include "ops/attention_worker.h"

namespace lmx {
namespace {

using namespace ops;

// ---- the op

// Gradients of q, k and v. Operands that are the same variable share a tensor.
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
    // If two operands use the same columns, their gradients are added up.
    const auto meet = [](const Operand& x, const Operand& y) { return x.var.same(y.var) && x.column == y.column; };
    if (!meet(a.q, a.k) && !meet(a.k, a.v) && !meet(a.q, a.v)) return;
    for (Tape::Sink* s : {&q, &k, &v}) {
      if (s->beta == 0) s->grad.zero();
    }
    for (Tape::Sink* s : {&q, &k, &v}) s->beta = 1;
  }
};

// Calls work(begin, end) with ranges of pairs, each for one thread. If sequences or heads share a bias that requires a
// gradient, one thread processes all pairs of a bias, in order.
template <class Work>
void share_pairs(const Attention& a, bool shares_bias, Work&& work) {
  if (!shares_bias)
    return parallel_for(a.pairs(), 1, [&](int64_t begin, int64_t end) { work(begin, end, int64_t{1}); });
  const int64_t heads = a.bias.heads > 1 ? a.kv_heads : 1;
  const int64_t sequences = a.bias.sequences > 1 ? a.queries.count() : 1;
  parallel_for(sequences * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = sequences > 1 ? i / heads * a.kv_heads : 0;
      const int64_t last = sequences > 1 ? first + a.kv_heads : a.pairs();
      work(first + i % heads, last, heads);
    }
  });
}

template <class T>
void backward(Context& ctx, const Attention& a, const Var& out, const Tensor& lse) {
  const Tensor dy = Tape::grad_of(out);
  Grads<T> grads(ctx, a);
  const bool biased = a.bias.var.defined() && a.bias.var.requires_grad();
  Tensor dbias;
  if (biased) dbias = ctx.zeros(a.bias.var.shape(), dtype_of<T>);
  T* pbias = biased ? dbias.data<T>() : nullptr;
  const auto place = [&](Tape::Sink& s, const Operand& o, int64_t row, int64_t head) {
    return typename Worker<T>::Grad{s.grad.template data<T>() + row * o.stride() + o.column + head * a.size, o.stride(),
                                    s.beta != 0};
  };
  share_pairs(a, biased, [&](int64_t begin, int64_t end, int64_t step) {
    Worker<T> worker(ctx, a, true);
    for (int64_t i = begin; i < end; i += step) {
      const Pair pair(a, i);
      worker.backward(i, out.value().data<T>(), lse.data<T>(), dy.data<T>(),
                      place(grads.q, a.q, pair.query, pair.head * a.group()), place(grads.k, a.k, pair.key, pair.head),
                      place(grads.v, a.v, pair.key, pair.head), pbias);
    }
  });
  if (biased) Tape::accumulate(ctx, a.bias.var, dbias);
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
  if (recording(ctx, {&a.q.var, &a.k.var, &a.v.var, &a.bias.var})) {
    // A variable that is used as several operands is listed once.
    std::vector<Var> inputs{a.q.var};
    for (const Var& v : {a.k.var, a.v.var, a.bias.var}) {
      if (!v.defined()) continue;
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

struct Heads {
  int64_t queries, keys;
  int64_t columns(int64_t parts_of_keys) const { return queries + parts_of_keys * keys; }
};

Heads heads_of(const AttentionOptions& o) {
  const Heads heads{o.heads, o.kv_heads == 0 ? o.heads : o.kv_heads};
  if (heads.queries < 1 || heads.keys < 1 || heads.queries % heads.keys != 0) {
    throw UserError(str("[attention] ", o.heads, " heads of queries and ", heads.keys,
                        " of keys and values: the second number must divide the first"));
  }
  return heads;
}

// The size of a head if the columns of x are divided among `heads` heads.
int64_t head_size(const char* name, const Var& x, int64_t heads) {
  const Shape& s = x.shape();
  if (s.rank() == 2 && s[1] > 0 && s[1] % heads == 0) return s[1] / heads;
  throw UserError(str("[attention] ", name, ' ', s, ": (rows, columns) expected, the columns divided evenly over ",
                      heads, heads == 1 ? " head" : " heads"));
}

Bias bias_of(const AttentionOptions& o, const Attention& a) {
  Bias bias;
  if (!o.bias.defined()) return bias;
  const Shape& s = o.bias.shape();
  check_same_type("attention", "q", a.q.var.value(), "bias", o.bias.value());
  bias.var = o.bias;
  if (s.rank() >= 2) {
    bias.queries = s[s.rank() - 2];
    bias.keys = s[s.rank() - 1];
    if (s.rank() >= 3) bias.heads = s[s.rank() - 3];
    if (s.rank() == 4) bias.sequences = s[0];
  }
  int64_t queries = 0, keys = 0;
  for (size_t b = 0; b + 1 < a.queries.begin.size(); ++b) {
    queries = std::max(queries, a.queries.begin[b + 1] - a.queries.begin[b]);
    keys = std::max(keys, a.keys.begin[b + 1] - a.keys.begin[b]);
  }
  const bool fits = s.rank() >= 2 && s.rank() <= 4 && (bias.heads == 1 || bias.heads == a.heads) &&
                    (bias.sequences == 1 || bias.sequences == a.queries.count());
  if (fits && bias.queries >= queries && bias.keys >= keys) return bias;
  throw UserError(str("[attention] bias ", s, " for ", a.queries.count(), " sequences of at most ", queries,
                      " queries and ", keys, " keys, and ", a.heads,
                      " heads: (Q, K), (heads, Q, K) or (sequences, heads, Q, K) expected, ",
                      "Q and K at least the longest"));
}

struct Operands {
  Operand q, k, v;
};

Var attend(Context& ctx, const Operands& x, int64_t size, const Segments& queries, const Segments& keys,
           const AttentionOptions& o) {
  const Heads heads = heads_of(o);
  Attention a{x.q, x.k, x.v, queries, keys, heads.queries, heads.keys, size, o.causal, o.dropout, ctx.compute};
  if (!ctx.training && a.p > 0 && a.p < 1) a.p = 0;
  check(a, o.row_ids.size());
  a.bias = bias_of(o, a);
  if (a.p > 0) {
    a.row_ids.assign(o.row_ids.begin(), o.row_ids.end());
    for (int64_t h = 0; h < a.heads; ++h) a.masks.emplace_back(a.p, o.key.fold(static_cast<uint64_t>(h)));
  }
  return run(ctx, std::move(a));
}

}  // namespace

std::vector<int64_t> positions_of(const Segments& rows) {
  const std::vector<int64_t>& begin = rows.begin;
  std::vector<int64_t> places;
  if (!begin.empty()) places.reserve(static_cast<size_t>(begin.back()));
  for (size_t b = 0; b + 1 < begin.size(); ++b) {
    for (int64_t t = 0; t < begin[b + 1] - begin[b]; ++t) places.push_back(t);
  }
  return places;
}

Segments Segments::of(std::span<const int64_t> lengths) {
  Segments s;
  s.begin.reserve(lengths.size() + 1);
  s.begin.push_back(0);
  for (const int64_t n : lengths) s.begin.push_back(s.begin.back() + n);
  return s;
}

Var attention(Context& ctx, const Var& q, const Var& k, const Var& v, const Segments& queries, const Segments& keys,
              const AttentionOptions& options) {
  const Heads heads = heads_of(options);
  const int64_t size = head_size("q", q, heads.queries);
  if (k.shape() != v.shape() || head_size("k", k, heads.keys) != size) {
    throw UserError(str("[attention] q ", q.shape(), ", k ", k.shape(), " and v ", v.shape(), " of ", heads.queries,
                        " and ", heads.keys,
                        " heads: (N, heads size), (M, kv_heads size) and (M, kv_heads size) expected"));
  }
  return attend(ctx, {{q, 0}, {k, 0}, {v, 0}}, size, queries, keys, options);
}

Var attention(Context& ctx, const Var& qkv, const Segments& rows, const AttentionOptions& options) {
  const Heads heads = heads_of(options);
  const int64_t size = head_size("qkv", qkv, heads.columns(2));
  const int64_t keys = heads.queries * size, values = heads.columns(1) * size;
  return attend(ctx, {{qkv, 0}, {qkv, keys}, {qkv, values}}, size, rows, rows, options);
}

Var attention(Context& ctx, const Var& q, const Var& kv, const Segments& queries, const Segments& keys,
              const AttentionOptions& options) {
  const Heads heads = heads_of(options);
  const int64_t size = head_size("q", q, heads.queries);
  if (head_size("kv", kv, 2 * heads.keys) != size) {
    throw UserError(str("[attention] q ", q.shape(), " and kv ", kv.shape(), " of ", heads.queries, " and ", heads.keys,
                        " heads: (N, heads size) and (M, 2 kv_heads size) expected"));
  }
  return attend(ctx, {{q, 0}, {kv, 0}, {kv, heads.keys * size}}, size, queries, keys, options);
}

}  // namespace lmx
