// Sampled softmax (Jean et al. 2015): compares each target with S common candidates c_s, sampled from a proposal.
//
//   z_i0 = h_i . w_t(i) + b_t(i) - log E_t(i)      z_is = h_i . w_c(s) + b_c(s) - log E_c(s)     (E: expected counts)
//   loss = sum_i w_i (logsumexp over {z_i0} and z_is - z_i0), without candidates equal to t(i) when hits are removed
//   p_is = w_i softmax(z_i)_s,  g_i = w_i (softmax(z_i)_0 - 1)
//   dh_i = g_i w_t(i) + sum_s p_is w_c(s)          dw: row t(i) += g_i h_i, row c(s) += sum_i p_is h_i     (row-sparse)
#include <cmath>
#include <limits>

#include "lmx/math.h"
#include "lmx/rows.h"
#include "ops/common.h"
#include "ops/softmax_rows.h"

namespace lmx {
namespace {

using namespace ops;

// The values that loss_row needs for one target.
template <class T>
struct Target {
  T logit;  // z_i0
  T weight;
  int32_t hit;    // id of a candidate to leave out; -1: none
  bool gradient;  // replace the logits by p
};
template <class T>
struct RowResult {
  double nll;  // unweighted
  T g;
};

// z (S): the products on entry. If gradients are needed, z contains p afterwards. `offset` is b - log E of the
// candidates.
template <class T>
LMX_SIMD RowResult<T> loss_row(T* __restrict z, const T* __restrict offset, const int32_t* __restrict ids, int64_t s,
                               const Target<T>& target) {
  constexpr T kOut = -std::numeric_limits<T>::infinity();
  const int32_t hit = target.hit;
  T m = target.logit;
#pragma omp simd reduction(max : m)
  for (int64_t j = 0; j < s; ++j) {
    const T shifted = z[j] + offset[j];
    const T logit = ids[j] == hit ? kOut : shifted;
    z[j] = logit;
    m = logit > m ? logit : m;
  }
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < s; ++j) {
    const T e = fast_exp(z[j] - m);
    z[j] = e;
    sum += e;
  }
  const T own = fast_exp(target.logit - m);
  sum += own;
  if (target.gradient) {
    const T scale = target.weight / sum;
    for (int64_t j = 0; j < s; ++j) z[j] *= scale;
  }
  return {static_cast<double>(m - target.logit) + std::log(static_cast<double>(sum)),
          target.weight * (own / sum - T(1))};
}

// Adds g w to the row of dh, and stores g h in the target's row of dw.
template <class T>
LMX_SIMD void target_gradients(T g, const T* __restrict h, const T* __restrict w, T* __restrict dh, T* __restrict dw,
                               int64_t d) {
  if (dh) {
    for (int64_t j = 0; j < d; ++j) dh[j] += g * w[j];
  }
  if (dw) {
    for (int64_t j = 0; j < d; ++j) dw[j] = g * h[j];
  }
}

struct Inputs {
  Var h, w, b;
  Tensor targets, weights;
};

// The values that the backward pass needs.
struct Saved {
  Inputs in;
  Var out;
  std::vector<int32_t> ids;  // (S)
  Tensor hc, wc;             // h (n, D) and the candidates' rows (S, D), in the type of matrix products
  Tensor p;                  // (n, S)
  Tensor g;                  // (n)
};

void check(const Inputs& in, const Candidates& c) {
  const Tensor& h = in.h.value();
  check_output_layer("sampled_softmax_loss", h, in.w.value(), in.b.defined() ? in.b.value() : Tensor());
  const int64_t n = h.dim(0), v = in.w.value().dim(0);
  check_targets("sampled_softmax_loss", in.targets, in.weights, n, {v, "w", in.w.shape()});
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

template <class T>
std::vector<T> candidate_offsets(const Inputs& in, const Candidates& c) {
  std::vector<T> offset(c.ids.size());
  for (size_t s = 0; s < c.ids.size(); ++s) {
    if (in.b.defined()) offset[s] = in.b.value().data<T>()[c.ids[s]];
    if (c.logq) offset[s] -= static_cast<T>(c.log_expected[s]);
  }
  return offset;
}

// Computes s.p and s.g, and returns the weighted sum of the nlls.
template <class T>
double forward(const Saved& saved, const Candidates& c, bool gradient) {
  const Inputs& in = saved.in;
  const int64_t n = in.h.value().dim(0), d = in.h.value().dim(1), v_samples = static_cast<int64_t>(c.ids.size());
  const std::vector<T> offset = candidate_offsets<T>(in, c);
  const T *h = in.h.value().data<T>(), *w = in.w.value().data<T>(),
          *b = in.b.defined() ? in.b.value().data<T>() : nullptr;
  const int32_t* t = in.targets.data<int32_t>();
  Tensor p = saved.p, gs = saved.g;
  std::vector<double> losses(static_cast<size_t>(n));
  parallel_for(n, row_grain(2 * v_samples + 2 * d), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T logit = dot(h + i * d, w + t[i] * d, d) + (b ? b[t[i]] : T(0));
      if (c.logq) logit -= static_cast<T>(c.target_log_expected[static_cast<size_t>(i)]);
      const double weight = weight_of(in.weights, i);
      const Target<T> target{logit, static_cast<T>(weight), c.remove_accidental_hits ? t[i] : -1, gradient};
      const RowResult<T> row = loss_row<T>(p.data<T>() + i * v_samples, offset.data(), c.ids.data(), v_samples, target);
      losses[static_cast<size_t>(i)] = weight * row.nll;
      gs.data<T>()[i] = row.g;
    }
  });
  double sum = 0;
  for (const double x : losses) sum += x;
  return sum;
}

template <class T>
void backward(Context& ctx, Saved& s) {
  const Inputs& in = s.in;
  const double seed = scalar_value(Tape::grad_of(s.out));
  scale_in_place(s.p, seed);
  scale_in_place(s.g, seed);
  const int64_t n = s.g.numel(), d = in.h.value().dim(1), samples = s.p.dim(1);
  const Tensor pc = as_operand(ctx, s.p);
  T* dh = nullptr;
  Tape::Sink sink;
  if (in.h.requires_grad()) {
    sink = Tape::sink(ctx, in.h);
    gemm(ctx, pc, false, s.wc, false, sink.grad, sink.beta);
    dh = sink.grad.data<T>();
  }
  Tensor dw_targets, dw_candidates;
  if (in.w.requires_grad()) {
    dw_targets = ctx.empty({n, d}, dtype_of<T>, MemClass::gradients);
    dw_candidates = ctx.empty({samples, d}, dtype_of<T>, MemClass::gradients);
    gemm(ctx, pc, true, s.hc, false, dw_candidates);
  }
  const T *h = in.h.value().data<T>(), *w = in.w.value().data<T>(), *g = s.g.data<T>();
  T* dw = dw_targets.defined() ? dw_targets.data<T>() : nullptr;
  const int32_t* t = in.targets.data<int32_t>();
  parallel_for(n, row_grain(2 * d), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      target_gradients<T>(g[i], h + i * d, w + t[i] * d, dh ? dh + i * d : nullptr, dw ? dw + i * d : nullptr, d);
    }
  });
  const std::vector<int32_t> targets(t, t + n);
  if (dw) {
    Tape::accumulate_rows(in.w, {targets, dw_targets, false});
    Tape::accumulate_rows(in.w, {s.ids, dw_candidates, false});
  }
  if (in.b.requires_grad()) {
    Tensor db = ctx.empty({samples}, dtype_of<T>, MemClass::gradients);
    column_sums(s.p, db, 0);
    Tape::accumulate_rows(in.b, {targets, s.g, false});
    Tape::accumulate_rows(in.b, {s.ids, db, false});
  }
}

}  // namespace

Var sampled_softmax_loss(Context& ctx, const Var& h, const Var& w, const Var& b, const Tensor& targets,
                         const Candidates& candidates, const Tensor& weights) {
  Saved s{{h, w, b, targets, weights}, Var(), candidates.ids, {}, {}, {}, {}};
  check(s.in, candidates);
  const int64_t n = h.value().dim(0), samples = static_cast<int64_t>(candidates.ids.size());
  const bool record = n > 0 && recording(ctx, {&h, &w, &b});
  s.hc = to_compute(ctx, h.value());
  s.wc = to_compute(ctx, gather_rows(ctx, w.value(), candidates.ids.data(), samples));
  s.p = ctx.empty({n, samples}, h.value().dtype());
  s.g = ctx.empty({n}, h.value().dtype());
  gemm(ctx, s.hc, false, s.wc, true, s.p);
  return with_values("sampled_softmax_loss", h.value(), [&](auto zero) {
    using T = decltype(zero);
    Var out(scalar(ctx, forward<T>(s, candidates, record), dtype_of<T>));
    s.out = out;
    if (record) {
      ctx.tape->record("sampled_softmax_loss", {h, w, b}, {out},
                       [&ctx, saved = std::move(s)](Tape&) mutable { backward<T>(ctx, saved); });
    }
    return out;
  });
}

}  // namespace lmx
