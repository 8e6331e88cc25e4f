// Two-stage softmax (Xiao 2017, section 4): forward over the words V_f, gradients only for its subset V_all.
//
//   z_ij = h_i . w_j + b_j for j in V_f;  loss = sum_i u_i (logsumexp_j z_ij - z_i,t(i))        (u: weights)
//   d_ij = u_i (softmax(z_i)_j - [j = t(i)])
//   dw_j = sum_i d_ij h_i and db_j = sum_i d_ij for j in V_all;  dh_i = sum_j d_ij w_j over V_all, or over V_f
//
// The rows of V_f are gathered once, those of V_all first, so that all products have small dense matrices. Rows of h
// are processed in blocks of bounded memory. A block's d is known as soon as its logits are, except for the factor that
// backward() supplies.
#include "ops/output_layer.h"

namespace lmx {
namespace {

using namespace ops;

// The position of each target in V_all.
std::vector<int64_t> places_of(const Tensor& targets, const TwoStageRows& rows) {
  const auto begin = rows.ids.begin(), end = begin + rows.trained;
  std::vector<int64_t> places;
  for (const int32_t t : targets.values<int32_t>()) {
    const auto at = std::lower_bound(begin, end, t);
    if (at == end || *at != t)
      throw UserError(str("[two_stage_softmax_loss] target ", places.size(), " = ", t, " is not among the ",
                          rows.trained, " words that take gradients"));
    places.push_back(at - begin);
  }
  return places;
}

void check_rows(const TwoStageRows& rows, const Tensor& w) {
  const auto n = static_cast<int64_t>(rows.ids.size());
  LMX_CHECK(rows.trained >= 0 && rows.trained <= n, rows.trained, " of ", n, " words take gradients");
  for (int64_t i = 0; i < n; ++i) {
    const int32_t id = rows.ids[static_cast<size_t>(i)];
    const bool ascends = i == 0 || i == rows.trained || rows.ids[static_cast<size_t>(i) - 1] < id;
    if (id < 0 || id >= w.dim(0) || !ascends)
      throw UserError(str("[two_stage_softmax_loss] word ", i, " = ", id, " for w ", w.shape(), ": must be in [0, ",
                          w.dim(0), ") and ascend within each part"));
  }
  const auto middle = rows.ids.begin() + rows.trained;
  for (auto all = rows.ids.begin(), noise = middle; all != middle && noise != rows.ids.end();) {
    if (*all == *noise) throw UserError(str("[two_stage_softmax_loss] word ", *all, " is in both parts"));
    *all < *noise ? ++all : ++noise;
  }
}

template <class T>
Tensor gather_bias(Context& ctx, const Tensor& b, const std::vector<int32_t>& ids) {
  Tensor out = ctx.empty({static_cast<int64_t>(ids.size())}, b.dtype());
  for (size_t j = 0; j < ids.size(); ++j) out.data<T>()[j] = b.data<T>()[ids[j]];
  return out;
}

// One pass over the blocks. Gradients are those of seed 1 times `lift`, and undefined if they are not needed.
struct Pass {
  const OutputLayer& layer;  // of V_f
  std::vector<int64_t> places;
  const Tensor& weights;
  int64_t trained;  // words of V_all
  bool forward_dh;  // dh over V_f
  bool record;
  double lift;
  Tensor dh, dw, db;
  std::vector<double> nll;

  int64_t rest() const { return layer.words() - trained; }

  // d of a block: writes the part of V_all to `all`, which may be the logits themselves, and that of the other words to
  // `others`.
  template <class T>
  void visit(int64_t first, Tensor& logits, Tensor& all, Tensor& others) {
    const int64_t words = layer.words();
    parallel_for(logits.dim(0), row_grain(words), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = logits.data<T>() + i * words;
        const int64_t target = places[static_cast<size_t>(first + i)];
        layer.add_bias_to(row);
        const double lse = log_sum_exp(row, words);
        nll[static_cast<size_t>(first + i)] = lse - static_cast<double>(row[target]);
        if (!record) continue;
        const double scale = lift * weight_of(weights, first + i);
        if (others.defined()) softmax_row(row + trained, others.data<T>() + i * rest(), lse, scale, rest());
        T* d = all.data<T>() + i * trained;
        softmax_row(row, d, lse, scale, trained);
        d[target] -= static_cast<T>(scale);
      }
    });
  }

  void add(Context& ctx, int64_t first, const Tensor& all, const Tensor& others) {
    const Tensor d = as_operand(ctx, all);
    const float beta = first == 0 ? 0.0f : 1.0f;
    if (dh.defined()) {
      Tensor rows = dh.slice(first, first + all.dim(0));
      gemm(ctx, d, false, layer.w.slice(0, trained), false, rows);
      if (others.defined())
        gemm(ctx, as_operand(ctx, others), false, layer.w.slice(trained, layer.words()), false, rows, 1);
    }
    if (dw.defined()) gemm(ctx, d, true, layer.h.slice(first, first + all.dim(0)), false, dw, beta);
    if (db.defined()) column_sums(all, db, beta);
  }

  template <class T>
  void run(Context& ctx) {
    Tensor all, others;
    for_blocks(ctx, layer, record, [&](int64_t first, Tensor& logits) {
      const int64_t rows = logits.dim(0);
      if (record && rest() == 0) all = logits;
      if (record && rest() > 0 && (!all.defined() || all.dim(0) < rows)) {
        all = ctx.empty({rows, trained}, dtype_of<T>);
        if (forward_dh && dh.defined()) others = ctx.empty({rows, rest()}, dtype_of<T>);
      }
      Tensor own = record ? all.slice(0, rows) : Tensor(), noise = others.defined() ? others.slice(0, rows) : Tensor();
      visit<T>(first, logits, own, noise);
      if (record) add(ctx, first, own, noise);
    });
  }
};

}  // namespace

Var two_stage_softmax_loss(Context& ctx, const Var& h, const Var& w, const Var& b, const Tensor& targets,
                           const TwoStageRows& rows, const Tensor& weights) {
  const Tensor bias = b.defined() ? b.value() : Tensor();
  check_output_layer("two_stage_softmax_loss", h.value(), w.value(), bias);
  const int64_t n = h.value().dim(0), d = h.value().dim(1);
  check_targets("two_stage_softmax_loss", targets, weights, n, {w.value().dim(0), "w", w.shape()});
  check_rows(rows, w.value());
  const DType type = h.value().dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (n == 0) return Var(scalar(ctx, 0, type));
  std::vector<int64_t> places = places_of(targets, rows);
  const bool record = recording(ctx, {&h, &w, &b});
  return with_values("two_stage_softmax_loss", h.value(), [&](auto zero) {
    using T = decltype(zero);
    const auto words = static_cast<int64_t>(rows.ids.size());
    const OutputLayer layer{to_compute(ctx, h.value()),
                            to_compute(ctx, gather_rows(ctx, w.value(), rows.ids.data(), words)),
                            bias.defined() ? gather_bias<T>(ctx, bias, rows.ids) : Tensor()};
    Pass pass{layer,
              std::move(places),
              weights,
              rows.trained,
              rows.dh_forward,
              record,
              lift_for(ctx),
              {},
              {},
              {},
              std::vector<double>(static_cast<size_t>(n))};
    if (record && h.requires_grad()) pass.dh = ctx.empty({n, d}, type);
    if (record && w.requires_grad()) pass.dw = ctx.empty({rows.trained, d}, type, MemClass::gradients);
    if (record && b.requires_grad()) pass.db = ctx.empty({rows.trained}, type, MemClass::gradients);
    pass.run<T>(ctx);
    Var out(scalar(ctx, weighted_sum(pass.nll, weights), type));
    if (!record) return out;
    std::vector<int32_t> all(rows.ids.begin(), rows.ids.begin() + rows.trained);
    ctx.tape->record("two_stage_softmax_loss", {h, w, b}, {out},
                     [&ctx, h, w, b, out, all = std::move(all), dh = pass.dh, dw = pass.dw, db = pass.db,
                      lift = pass.lift](Tape&) mutable {
                       const double factor = scalar_value(Tape::grad_of(out)) / lift;
                       for (Tensor* t : {&dh, &dw, &db})
                         if (t->defined()) scale_in_place(*t, factor);
                       if (dh.defined()) Tape::accumulate(ctx, h, dh);
                       if (dw.defined()) Tape::accumulate_rows(w, {all, dw, true});
                       if (db.defined()) Tape::accumulate_rows(b, {all, db, true});
                     });
    return out;
  });
}

}  // namespace lmx
