// Sampled softmax (Jean et al. 2015): compares each target with S common candidates c_s, sampled from a proposal.
//
//   z_i0 = h_i . w_t(i) + b_t(i) - log E_t(i)      z_is = h_i . w_c(s) + b_c(s) - log E_c(s)     (E: expected counts)
//   loss = sum_i w_i (logsumexp over {z_i0} and z_is - z_i0), without candidates equal to t(i) when hits are removed
//   p_is = w_i softmax(z_i)_s,  g_i = w_i (softmax(z_i)_0 - 1)
//   dh_i = g_i w_t(i) + sum_s p_is w_c(s)          dw: row t(i) += g_i h_i, row c(s) += sum_i p_is h_i     (row-sparse)
#include "ops/losses/sampled_softmax.h"

#include "ops/losses/output_layer.h"

namespace lmx {
namespace {

using namespace ops;

// The values that the backward pass needs.
struct Saved {
  SoftmaxInputs in;
  Var out;
  std::vector<int32_t> ids;  // (S)
  Tensor targets;            // on the device
  Tensor hc, wc;             // h (n, D) and the candidates' rows (S, D), in the type of matrix products
  Tensor p;                  // (n, S)
  Tensor g;                  // (n)
};

void check(const SoftmaxInputs& in, const Candidates& c) {
  check_inputs("sampled_softmax_loss", in);
  const int64_t n = in.h.shape()[0], v = in.w.shape()[0];
  if (c.ids.empty()) throw UserError("[sampled_softmax_loss] no candidates");
  for (size_t s = 0; s < c.ids.size(); ++s) {
    if (c.ids[s] >= 0 && c.ids[s] < v) continue;
    throw UserError(str("[sampled_softmax_loss] candidate ", s, " = ", c.ids[s], " for w ", in.w.shape(),
                        ": must be in [0, ", v, ")"));
  }
  if (!c.logq) return;
  if (c.log_expected.size() != c.ids.size() || c.target_log_expected.size() != static_cast<size_t>(n)) {
    throw UserError(str("[sampled_softmax_loss] expected counts of ", c.log_expected.size(), " candidates and ",
                        c.target_log_expected.size(), " targets, for ", c.ids.size(), " and ", n));
  }
}

// Fills hc, wc, p and g of `s`, and returns the loss.
template <class T>
Var forward(Context& ctx, Saved& s, const Candidates& c, bool gradient) {
  const Tensor &h = s.in.h.value(), &w = s.in.w.value(), weights = upload_if_defined(ctx, s.in.weights);
  const T* b = s.in.b.defined() ? s.in.b.value().data<T>() : nullptr;
  const int64_t n = h.dim(0), samples = static_cast<int64_t>(c.ids.size());
  const Uploaded<int32_t> ids = ctx.upload(c.ids);
  std::vector<float> counts;  // expected counts of the candidates, then of the targets
  if (c.logq) {
    counts = c.log_expected;
    counts.insert(counts.end(), c.target_log_expected.begin(), c.target_log_expected.end());
  }
  const Uploaded<float> expected = c.logq ? ctx.upload(std::move(counts)) : Uploaded<float>();
  const float *log_expected = expected.data(), *target_log_expected = c.logq ? log_expected + samples : nullptr;
  s.hc = to_compute(ctx, h);
  s.wc = to_compute(ctx, gather_rows(ctx, w, ids.data(), samples));
  s.p = ctx.empty({n, samples}, dtype_of<T>);
  s.g = ctx.empty({n}, dtype_of<T>);
  gemm(ctx, s.hc, false, s.wc, true, s.p);
  Tensor offset = ctx.empty({samples}, dtype_of<T>), nll = ctx.empty({n}, DType::f64);
  run_kernel(ctx, SampledSoftmaxOffsets<T>{ids.data(), b, log_expected, offset.data<T>(), samples});
  run_kernel(ctx, SampledSoftmaxForward<T>{h.data<T>(), w.data<T>(), b, s.targets.data<int32_t>(), ids.data(),
                                           data_or_null<float>(weights), target_log_expected, offset.data<T>(),
                                           s.p.data<T>(), s.g.data<T>(), nll.data<double>(), n, h.dim(1), samples,
                                           c.remove_accidental_hits, gradient});
  return sum_of_losses(ctx, nll, Tensor(), Tensor(), dtype_of<T>).loss;
}

template <class T>
void backward(Context& ctx, Saved& s) {
  const SoftmaxInputs& in = s.in;
  const Tensor& seed = Tape::grad_of(s.out);
  scale_by_seed(ctx, s.p, seed, 1);
  scale_by_seed(ctx, s.g, seed, 1);
  const int64_t n = s.g.numel(), d = in.h.shape()[1], samples = s.p.dim(1);
  const Tensor pc = as_operand(ctx, s.p);
  Tensor dh, dw_targets, dw_candidates;
  if (in.h.requires_grad()) {
    Tape::Sink sink = Tape::sink(ctx, in.h);
    gemm(ctx, pc, false, s.wc, false, sink.grad, sink.beta);
    dh = sink.grad;
  }
  if (in.w.requires_grad()) {
    dw_targets = ctx.empty({n, d}, dtype_of<T>, MemClass::gradients);
    dw_candidates = ctx.empty({samples, d}, dtype_of<T>, MemClass::gradients);
    gemm(ctx, pc, true, s.hc, false, dw_candidates);
  }
  run_kernel(
      ctx, SampledSoftmaxTargets<T>{s.g.data<T>(), in.h.value().data<T>(), in.w.value().data<T>(),
                                    s.targets.data<int32_t>(), data_or_null<T>(dh), data_or_null<T>(dw_targets), n, d});
  const auto ids = in.targets.values<int32_t>();
  const std::vector<int32_t> targets(ids.begin(), ids.end());
  if (in.w.requires_grad()) {
    Tape::accumulate_rows(ctx, in.w, {targets, dw_targets, false});
    Tape::accumulate_rows(ctx, in.w, {s.ids, dw_candidates, false});
  }
  if (in.b.requires_grad()) {
    Tensor db = ctx.empty({samples}, dtype_of<T>, MemClass::gradients);
    column_sums(ctx, s.p, db, 0);
    Tape::accumulate_rows(ctx, in.b, {targets, s.g, false});
    Tape::accumulate_rows(ctx, in.b, {s.ids, db, false});
  }
}

}  // namespace

Var sampled_softmax_loss(Context& ctx, const SoftmaxInputs& in, const Candidates& candidates) {
  check(in, candidates);
  return with_values("sampled_softmax_loss", in.h.value(), [&](auto zero) {
    using T = decltype(zero);
    const bool record = in.h.shape()[0] > 0 && recording(ctx, {&in.h, &in.w, &in.b});
    Saved s{in, {}, candidates.ids, ctx.upload(in.targets), {}, {}, {}, {}};
    const Var out = s.out = forward<T>(ctx, s, candidates, record);
    if (record) {
      ctx.tape->record("sampled_softmax_loss", {in.h, in.w, in.b}, {out},
                       [&ctx, saved = std::move(s)](Tape&) mutable { backward<T>(ctx, saved); });
    }
    return out;
  });
}

}  // namespace lmx
