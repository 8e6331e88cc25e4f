// Multi-head scaled dot-product attention (Vaswani et al. 2017) of each sequence over its own keys. For one head of
// size d:
//
//   s = q k^T / sqrt(d) + bias     w = softmax(s)       W = w * mask / (1 - p)     y = W v
//   dv = W^T dy     dW = dy v^T     db = w (dW * mask / (1 - p) - delta),  delta_i = dy_i . y_i     ds = db / sqrt(d)
//   dq = ds k       dk = ds^T q     dbias: the sum of db over the sequences and heads that share the bias
//
// Backward computes the weights again from the logarithm of each row's sum. Rows are packed without padding, and no
// result depends on the number of threads.
//
// On tensor cores (attention_mma.h), q, k, v, y and dy are read in the type of products. Attention of projections has
// them, and their gradients, in this type alone. A projection is then a product without its bias, which the kernels add
// when they read it. A rotated projection (rope.cc) has its bias.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "lmx/matmul.h"
#include "lmx/ops.h"
#include "ops/attention/attention_mma.h"
#include "ops/attention/sdpa.h"
#include "ops/common.h"
#include "ops/layers/linear.h"

namespace lmx {
namespace {

using namespace ops;

// One call: what forward and backward have in common.
struct Call {
  Operands x;
  AttentionPlan plan;
  Var bias = {};
  Uploaded<int64_t> query_begin = {}, key_begin = {};
  int64_t scores = 0;             // of one head, over all sequences; on a device that counts
  Uploaded<DropMask> masks = {};  // by head, if weights are dropped
  Uploaded<uint64_t> row_ids = {};
  std::shared_ptr<const LongAttention> by_cudnn = {};  // null: lmx's own kernels compute it
  template <class T, class S>
  AttentionInput<T, S> input(Context& ctx) const {
    return {plan,
            x.q.columns<S>(ctx),
            x.k.columns<S>(ctx),
            x.v.columns<S>(ctx),
            bias.defined() ? bias.value().data<T>() : nullptr,
            query_begin.data(),
            key_begin.data(),
            masks.data(),
            row_ids.data(),
            x.q.bias_columns(),
            x.k.bias_columns(),
            x.v.bias_columns()};
  }
};

// Calls f(T{}, S{}) with the types of a call's values and operands.
template <class F>
void with_types(const Context& ctx, const Call& c, const F& f) {
  if (c.x.q.value_type() == DType::f64) return f(double(), double());
  if (!on_tensor_cores(ctx, c.plan.size)) return f(float(), float());
  c.plan.compute == DType::bf16 ? f(float(), bfloat16()) : f(float(), float16());
}

// Notes `products` products of each head, which have as many multiply-adds as there are scores, times its size.
void count_products(const Context& ctx, const Call& c, int64_t products) {
  if (c.scores == 0) return;
  const int64_t rows = c.x.q.var.value().dim(0), sequences = c.plan.sequences;
  const auto per = [](int64_t all, int64_t parts) { return std::max<int64_t>(1, (all + parts / 2) / parts); };
  count_product(ctx, per(rows, sequences), per(c.scores, rows), c.plan.size, products * c.plan.heads * sequences);
}

int64_t scores_of(const Segments& queries, const Segments& keys, bool causal) {
  int64_t scores = 0;
  for (size_t b = 0; b + 1 < queries.begin.size(); ++b) {
    const int64_t rows = queries.begin[b + 1] - queries.begin[b], of_row = keys.begin[b + 1] - keys.begin[b];
    scores += causal ? rows * (rows + 1) / 2 : rows * of_row;
  }
  return scores;
}

// ---- the op

// Gradients of q, k and v. Operands that are the same variable share a tensor.
struct Grads {
  Tape::Sink q, k, v;
  Grads(Context& ctx, const Operands& x) {
    const auto sink = [&](const Operand& o) {
      if (o.var.requires_grad()) return Tape::sink(ctx, o.var);
      return Tape::Sink{o.var.value().like(MemClass::activations), 0.0f};
    };
    q = sink(x.q);
    k = x.k.var.same(x.q.var) ? q : sink(x.k);
    v = x.v.var.same(x.k.var) ? k : x.v.var.same(x.q.var) ? q : sink(x.v);
    // If two operands use the same columns, their gradients are added up.
    if (!same_columns(x.q, x.k) && !same_columns(x.k, x.v) && !same_columns(x.q, x.v)) return;
    for (Tape::Sink* s : {&q, &k, &v}) {
      if (s->beta == 0) s->grad.zero();
    }
    for (Tape::Sink* s : {&q, &k, &v}) s->beta = 1;
  }
};

template <class T>
AttentionGradient<T> gradient(Context& ctx, Tape::Sink& s, const Operand& o) {
  if (s.grad.dtype() != dtype_of<T>) {
    LMX_CHECK(s.beta == 0, "a rounded projection that two ops read");
    return {{nullptr, o.stride()}, false, operand_target(ctx, s.grad), o.column};
  }
  const OperandTarget operand = o.var.requires_grad() ? Tape::operand_of_sink(ctx, o.var, s) : OperandTarget();
  return {{s.grad.data<T>() + o.column, o.stride()}, s.beta != 0, operand, o.column};
}

template <class T, class S>
void backward(Context& ctx, const Call& c, const Var& out, const Tensor& lse) {
  constexpr bool kOperands = !std::is_same_v<T, S>;
  const Tensor dy = kOperands ? Tape::operand_of_grad(ctx, out) : Tape::grad_of(out);
  const Tensor y = kOperands ? compute_copy(ctx, out) : out.value();
  Grads grads(ctx, c.x);
  Tensor dbias;
  if (c.bias.requires_grad()) dbias = ctx.zeros(c.bias.shape(), dtype_of<T>);
  run_kernel(ctx,
             AttentionBackward<T, S>{c.input<T, S>(ctx), y.data<S>(), dy.data<S>(), lse.data<T>(),
                                     gradient<T>(ctx, grads.q, c.x.q), gradient<T>(ctx, grads.k, c.x.k),
                                     gradient<T>(ctx, grads.v, c.x.v), dbias.defined() ? dbias.data<T>() : nullptr});
  if (dbias.defined()) Tape::accumulate(ctx, c.bias, dbias);
}

Var run(Context& ctx, const Call& c) {
  const Tensor& q = c.x.q.var.value();
  const bool projected = c.x.q.projected;
  Tensor y = ctx.empty({q.dim(0), c.plan.heads * c.plan.size}, q.dtype());
  Tensor lse = ctx.empty({q.dim(0), c.plan.heads}, c.x.q.value_type());
  const Var out(y);
  count_products(ctx, c, 2);
  if (c.by_cudnn) {
    c.by_cudnn->forward(ctx, c.x, out, lse);
  } else {
    with_types(ctx, c, [&](auto value, auto operand) {
      using T = decltype(value);
      using S = decltype(operand);
      run_kernel(ctx, AttentionForward<T, S>{c.input<T, S>(ctx), projected ? nullptr : y.data<T>(), lse.data<T>(),
                                             projected ? operand_target(ctx, y) : target_of_copy(ctx, out)});
    });
  }
  if (recording(ctx, {&c.x.q.var, &c.x.k.var, &c.x.v.var, &c.bias})) {
    // A variable that is used as several operands is listed once.
    std::vector<Var> inputs{c.x.q.var};
    for (const Var& v : {c.x.k.var, c.x.v.var, c.bias}) {
      if (!v.defined()) continue;
      if (std::none_of(inputs.begin(), inputs.end(), [&](const Var& u) { return u.same(v); })) inputs.push_back(v);
    }
    ctx.tape->record("attention", std::move(inputs), {out}, [&ctx, c, out, lse](Tape&) {
      count_products(ctx, c, 5);
      if (c.by_cudnn) return c.by_cudnn->backward(ctx, c.x, out, lse);
      with_types(ctx, c,
                 [&](auto value, auto operand) { backward<decltype(value), decltype(operand)>(ctx, c, out, lse); });
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

// p: the probability with which weights are dropped here.
void check(const Operands& x, const Segments& queries, const Segments& keys, const AttentionOptions& o, double p) {
  const Tensor &q = x.q.var.value(), &k = x.k.var.value(), &v = x.v.var.value();
  if (!x.q.projected) with_values("attention", q, [](auto) {});
  check_same_type("attention", "q", q, "k", k);
  check_same_type("attention", "q", q, "v", v);
  check_segments("queries", queries, q);
  check_segments("keys", keys, k);
  if (queries.count() != keys.count() || (o.causal && queries.begin != keys.begin)) {
    throw UserError(str(
        "[attention] ", queries.count(), " sequences of ", q.dim(0), " queries and ", keys.count(), " of ", k.dim(0),
        " keys: ", o.causal ? "a causal attention has a key for each query" : "the numbers must be equal"));
  }
  for (int64_t b = 0; b < keys.count(); ++b) {
    const auto i = static_cast<size_t>(b);
    if (keys.begin[i] == keys.begin[i + 1] && queries.begin[i] != queries.begin[i + 1]) {
      throw UserError(str("[attention] sequence ", b, " has ", queries.begin[i + 1] - queries.begin[i],
                          " queries and no keys: there is nothing to attend to"));
    }
  }
  if (!(p >= 0 && p < 1)) throw UserError(str("[attention] dropout ", p, ": must be in [0, 1)"));
  if (p > 0 && static_cast<int64_t>(o.row_ids.size()) != q.dim(0)) {
    throw UserError(str("[attention] ", o.row_ids.size(), " row ids for q ", q.shape(), ": one for each row expected"));
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
int64_t head_size(const char* name, const Shape& s, int64_t heads) {
  if (s.rank() == 2 && s[1] > 0 && s[1] % heads == 0) return s[1] / heads;
  throw UserError(str("[attention] ", name, ' ', s, ": (rows, columns) expected, the columns divided evenly over ",
                      heads, heads == 1 ? " head" : " heads"));
}

int64_t longest(const Segments& s) {
  int64_t rows = 0;
  for (size_t b = 0; b + 1 < s.begin.size(); ++b) rows = std::max(rows, s.begin[b + 1] - s.begin[b]);
  return rows;
}

BiasShape bias_shape(const Tensor& bias, const Operand& q, const AttentionPlan& plan) {
  const Shape& s = bias.shape();
  if (bias.dtype() != q.value_type()) check_same_type("attention", "q", q.var.value(), "bias", bias);
  BiasShape shape;
  if (s.rank() >= 2) {
    shape.queries = s[s.rank() - 2];
    shape.keys = s[s.rank() - 1];
    if (s.rank() >= 3) shape.heads = s[s.rank() - 3];
    if (s.rank() == 4) shape.sequences = s[0];
  }
  const bool fits = s.rank() >= 2 && s.rank() <= 4 && (shape.heads == 1 || shape.heads == plan.heads) &&
                    (shape.sequences == 1 || shape.sequences == plan.sequences);
  if (fits && shape.queries >= plan.queries && shape.keys >= plan.keys) return shape;
  throw UserError(str("[attention] bias ", s, " for ", plan.sequences, " sequences of at most ", plan.queries,
                      " queries and ", plan.keys, " keys, and ", plan.heads,
                      " heads: (Q, K), (heads, Q, K) or (sequences, heads, Q, K) expected, ",
                      "Q and K at least the longest"));
}

Var attend(Context& ctx, const Operands& x, int64_t size, const Segments& queries, const Segments& keys,
           const AttentionOptions& o) {
  const Heads heads = heads_of(o);
  const double p = !ctx.training && o.dropout > 0 && o.dropout < 1 ? 0 : o.dropout;
  check(x, queries, keys, o, p);
  Call c{x,
         {queries.count(), heads.queries, heads.keys, size, longest(queries), longest(keys), o.causal, ctx.compute,
          1.0 / std::sqrt(static_cast<double>(size))},
         o.bias};
  if (o.bias.defined()) c.plan.bias = bias_shape(o.bias.value(), x.q, c.plan);
  c.query_begin = ctx.upload(queries.begin);
  c.key_begin = queries.begin == keys.begin ? c.query_begin : ctx.upload(keys.begin);
  if (ctx.device.counts) c.scores = scores_of(queries, keys, o.causal);
  if (p > 0) {
    std::vector<DropMask> masks;
    for (int64_t h = 0; h < heads.queries; ++h) masks.emplace_back(p, o.key.fold(static_cast<uint64_t>(h)));
    c.masks = ctx.upload(std::move(masks));
    c.row_ids = ctx.upload(std::vector<uint64_t>(o.row_ids.begin(), o.row_ids.end()));
  }
  if (p == 0 && !o.bias.defined()) c.by_cudnn = LongAttention::of(ctx, x, c.plan, queries, keys);
  return run(ctx, c);
}

// The columns of `all` from `column` on.
Operand columns_of(const Operand& all, int64_t column) {
  return {all.var, column, all.projected, all.bias};
}

Var attend_side_by_side(Context& ctx, const Operand& qkv, const Segments& rows, const AttentionOptions& options) {
  const Heads heads = heads_of(options);
  const int64_t size = head_size("qkv", qkv.var.shape(), heads.columns(2));
  const int64_t keys = heads.queries * size, values = heads.columns(1) * size;
  return attend(ctx, {qkv, columns_of(qkv, keys), columns_of(qkv, values)}, size, rows, rows, options);
}

Var attend_across(Context& ctx, const Operand& q, const Operand& kv, const Segments& queries, const Segments& keys,
                  const AttentionOptions& options) {
  const Heads heads = heads_of(options);
  const int64_t size = head_size("q", q.var.shape(), heads.queries);
  if (head_size("kv", kv.var.shape(), 2 * heads.keys) != size) {
    throw UserError(str("[attention] q ", q.var.shape(), " and kv ", kv.var.shape(), " of ", heads.queries, " and ",
                        heads.keys, " heads: (N, heads size) and (M, 2 kv_heads size) expected"));
  }
  return attend(ctx, {q, kv, columns_of(kv, heads.keys * size)}, size, queries, keys, options);
}

// Whether attention of projections has its operands in the type of products alone. w: a weight that computes the
// columns of `heads` heads. cuDNN may compute attention to more keys, and does not add a bias to its operands.
bool rounds_projections(const Context& ctx, const Var& w, int64_t heads, const Segments& keys) {
  return w.value().dtype() == DType::f32 && on_tensor_cores(ctx, w.value().dim(0) / heads) && longest(keys) <= kFewKeys;
}

Operand operand_of(Context& ctx, const Projection& p, bool rounds) {
  if (!rounds) return {linear(ctx, p.x, p.w, p.b)};
  return {rounded_linear(ctx, p.x, p.w, p.b), 0, true, p.b};
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

Var attention(Context& ctx, const AttentionInputs& x, const AttentionOptions& options) {
  const Heads heads = heads_of(options);
  const int64_t size = head_size("q", x.q.shape(), heads.queries);
  if (x.k.shape() != x.v.shape() || head_size("k", x.k.shape(), heads.keys) != size) {
    throw UserError(str("[attention] q ", x.q.shape(), ", k ", x.k.shape(), " and v ", x.v.shape(), " of ",
                        heads.queries, " and ", heads.keys,
                        " heads: (N, heads size), (M, kv_heads size) and (M, kv_heads size) expected"));
  }
  return attend(ctx, {{x.q, 0}, {x.k, 0}, {x.v, 0}}, size, x.queries, x.keys, options);
}

Var attention(Context& ctx, const Var& qkv, const Segments& rows, const AttentionOptions& options) {
  const bool rounded = stores_operands(ctx.device.kind, ctx.compute) && qkv.value().dtype() == ctx.compute;
  return attend_side_by_side(ctx, {qkv, 0, rounded}, rows, options);
}

Var attention(Context& ctx, const Var& q, const Var& kv, const Segments& queries, const Segments& keys,
              const AttentionOptions& options) {
  return attend_across(ctx, {q, 0}, {kv, 0}, queries, keys, options);
}

Var attention(Context& ctx, const Projection& qkv, const Segments& rows, const AttentionOptions& options) {
  const bool rounds = rounds_projections(ctx, qkv.w, heads_of(options).columns(2), rows);
  return attend_side_by_side(ctx, operand_of(ctx, qkv, rounds), rows, options);
}

Var attention(Context& ctx, const Projection& q, const Projection& kv, const Segments& queries, const Segments& keys,
              const AttentionOptions& options) {
  const bool rounds = rounds_projections(ctx, q.w, heads_of(options).queries, keys);
  return attend_across(ctx, operand_of(ctx, q, rounds), operand_of(ctx, kv, rounds), queries, keys, options);
}

}  // namespace lmx
