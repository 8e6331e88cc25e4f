// Two-stage softmax (Xiao 2017, section 4): forward over the words V_f, gradients only for its subset V_all.
//
//   z_ij = h_i . w_j + b_j for j in V_f;  loss = sum_i u_i (logsumexp_j z_ij - z_i,t(i))        (u: weights)
//   d_ij = u_i (softmax(z_i)_j - [j = t(i)])
//   dw_j = sum_i d_ij h_i and db_j = sum_i d_ij for j in V_all;  dh_i = sum_j d_ij w_j over V_all, or over V_f
//
// The rows of V_f are gathered once, those of V_all first, so that all products have small dense matrices. Rows of h
// are processed in blocks of bounded memory. A block's d is known as soon as its logits are, except for the factor that
// backward() supplies.
#include "ops/losses/two_stage_softmax.h"

#include <optional>

#include "ops/losses/output_layer.h"

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

// One pass over the blocks.
struct Pass {
  OutputLayer layer;         // of V_f
  Uploaded<int64_t> places;  // (n)
  Tensor weights;            // on the device
  int64_t trained;           // words of V_all
  bool forward_dh;           // dh over V_f
  std::optional<OutputGradients> gradients = {};
  Tensor nll = {};  // f64 (n) unweighted

  int64_t rest() const { return layer.words() - trained; }

  // d of a block: the part of V_all in `all`, which may be the logits themselves, and that of the other words in
  // `others`.
  template <class T>
  void visit(Context& ctx, int64_t first, Tensor& logits, Tensor all, Tensor others) {
    run_kernel(ctx,
               TwoStageBlock<T>{logits.data<T>(), data_or_null<T>(layer.b), places.data(), data_or_null<float>(weights),
                                nll.data<double>(), data_or_null<T>(all), data_or_null<T>(others), first, logits.dim(0),
                                layer.words(), trained, gradients ? gradients->lift : 0});
    if (!gradients) return;
    gradients->add(ctx, layer, first, all);
    if (!others.defined()) return;
    Tensor dh = gradients->dh.slice(first, first + all.dim(0));
    gemm(ctx, as_operand(ctx, others), false, layer.w.slice(trained, layer.words()), false, dh, 1);
  }

  template <class T>
  void run(Context& ctx) {
    nll = ctx.empty({layer.n()}, DType::f64);
    Tensor all, others;
    for_blocks(ctx, layer, gradients.has_value(), dtype_of<T>, [&](int64_t first, Tensor& logits) {
      const int64_t rows = logits.dim(0);
      if (gradients && rest() == 0) all = logits;
      if (gradients && rest() > 0 && (!all.defined() || all.dim(0) < rows)) {
        all = ctx.empty({rows, trained}, dtype_of<T>);
        if (forward_dh && gradients->dh.defined()) others = ctx.empty({rows, rest()}, dtype_of<T>);
      }
      visit<T>(ctx, first, logits, all.defined() ? all.slice(0, rows) : all,
               others.defined() ? others.slice(0, rows) : others);
    });
  }
};

// The words of V_f as an output layer.
OutputLayer layer_of(Context& ctx, const SoftmaxInputs& in, const std::vector<int32_t>& words) {
  const Uploaded<int32_t> ids = ctx.upload(words);
  OutputLayer layer{to_compute(ctx, in.h.value()),
                    to_compute(ctx, gather_rows(ctx, in.w.value(), ids.data(), ids.size())), Tensor()};
  if (in.b.defined()) layer.b = gather_rows(ctx, in.b.value(), ids.data(), ids.size()).reshape({ids.size()});
  return layer;
}

}  // namespace

Var two_stage_softmax_loss(Context& ctx, const SoftmaxInputs& in, const TwoStageRows& rows) {
  check_inputs("two_stage_softmax_loss", in);
  check_rows(rows, in.w.value());
  const DType type = in.h.value().dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (in.h.shape()[0] == 0) return Var(ctx.zeros({1}, type));
  Pass pass{
      {}, ctx.upload(places_of(in.targets, rows)), upload_if_defined(ctx, in.weights), rows.trained, rows.dh_forward};
  pass.layer = layer_of(ctx, in, rows.ids);
  if (recording(ctx, {&in.h, &in.w, &in.b})) pass.gradients.emplace(ctx, in, rows.trained);
  with_values("two_stage_softmax_loss", in.h.value(), [&](auto zero) { pass.run<decltype(zero)>(ctx); });
  const Var out = sum_of_losses(ctx, pass.nll, Tensor(), pass.weights, type).loss;
  if (pass.gradients) {
    std::vector<int32_t> all(rows.ids.begin(), rows.ids.begin() + rows.trained);
    ctx.tape->record(
        "two_stage_softmax_loss", {in.h, in.w, in.b}, {out},
        [&ctx, h = in.h, w = in.w, b = in.b, out, all = std::move(all), gradients = *pass.gradients](Tape&) mutable {
          gradients.scale(ctx, Tape::grad_of(out));
          if (gradients.dh.defined()) Tape::accumulate(ctx, h, gradients.dh);
          if (gradients.dw.defined()) Tape::accumulate_rows(ctx, w, {all, gradients.dw, true});
          if (gradients.db.defined()) Tape::accumulate_rows(ctx, b, {all, gradients.db, true});
        });
  }
  return out;
}

}  // namespace lmx
