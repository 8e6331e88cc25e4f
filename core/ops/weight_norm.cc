// Weight normalisation (Salimans and Kingma 2016), with a gain for each output row:
//
//   w = g v / n,  n = |v|        dg = (dw . v) / n        dv = g / n (dw - v (dw . v) / n^2)
//
// Norms and products are summed in double, independent of the training precision: v and g are the fp32 masters (FACTS
// A3.1).
#include <cmath>

#include "lmx/sequence.h"
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

void check(const Tensor& v, const Tensor& g) {
  if (v.rank() != 2 || v.dim(1) == 0 || g.shape() != Shape{v.dim(0)}) {
    throw UserError(str("[weight_norm] v ", v.shape(), ", g ", g.shape(), ": v must be a matrix (N, K), g (N)"));
  }
  check_same_type("weight_norm", "v", v, "g", g);
}

template <class T>
LMX_SIMD double dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

template <class T>
LMX_SIMD void scaled(const T* v, T* w, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) w[i] = factor * v[i];
}

template <class T>
LMX_SIMD void backward_row(const T* v, const T* dw, T* dv, T factor, T along, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dv[i] = factor * (dw[i] - along * v[i]);
}

// w and the norms of v's rows. They are computed once until v or g changes, for all micro-batches and replicas, and the
// packed form of w is stored with them.
struct Normed {
  Var w;
  std::vector<double> norms;  // (N)
};

template <class T>
Normed normed(Context& ctx, const Tensor& v, const Tensor& g) {
  const int64_t rows = v.dim(0), cols = v.dim(1);
  Tensor w = ctx.empty(v.shape(), v.dtype(), MemClass::parameters);
  std::vector<double> norms(static_cast<size_t>(rows));
  const T *pv = v.data<T>(), *pg = g.data<T>();
  T* pw = w.data<T>();
  parallel_for(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double norm = std::sqrt(dot(pv + r * cols, pv + r * cols, cols));
      norms[static_cast<size_t>(r)] = norm;
      // The direction of a zero row is undefined, so w and its gradients are 0.
      scaled(pv + r * cols, pw + r * cols, norm > 0 ? static_cast<T>(static_cast<double>(pg[r]) / norm) : T(0), cols);
    }
  });
  return {Var(std::move(w)), std::move(norms)};
}

template <class T>
void backward(Context& ctx, const Var& v, const Var& g, const Tensor& dw, const std::vector<double>& norms) {
  const int64_t rows = v.shape()[0], cols = v.shape()[1];
  Tensor dv = v.value().like(MemClass::gradients), dg = g.value().like(MemClass::gradients);
  const T *from = v.value().template data<T>(), *gains = g.value().template data<T>(), *d = dw.data<T>();
  T *to = dv.data<T>(), *dgains = dg.data<T>();
  parallel_for(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double norm = norms[static_cast<size_t>(r)], inverse = norm > 0 ? 1 / norm : 0;
      const double along = dot(d + r * cols, from + r * cols, cols) * inverse;
      dgains[r] = static_cast<T>(along);
      backward_row(from + r * cols, d + r * cols, to + r * cols,
                   static_cast<T>(static_cast<double>(gains[r]) * inverse), static_cast<T>(along * inverse), cols);
    }
  });
  Tape::accumulate(ctx, v, dv);
  Tape::accumulate(ctx, g, dg);
}

template <class T>
Var typed(Context& ctx, const Var& v, const Var& g) {
  const Normed& made = v.cached<Normed>(str("weight_norm ", g.version()), [&] {
    const Span span(ctx.tracer, "weight_norm.forward");
    return normed<T>(ctx, v.value(), g.value());
  });
  // A replica: it shares the value, but has its own gradient.
  Var out = made.w.replica();
  if (recording(ctx, {&v, &g})) {
    ctx.tape->record("weight_norm", {v, g}, {out}, [&ctx, v, g, out, norms = made.norms](Tape&) {
      backward<T>(ctx, v, g, Tape::grad_of(out), norms);
    });
  }
  return out;
}

}  // namespace

Var weight_norm(Context& ctx, const Var& v, const Var& g) {
  check(v.value(), g.value());
  return with_values("weight_norm", v.value(), [&](auto zero) { return typed<decltype(zero)>(ctx, v, g); });
}

}  // namespace lmx
