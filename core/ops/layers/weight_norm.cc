// Weight normalisation (Salimans and Kingma 2016), with a gain for each output row:
//
//   w = g v / n,  n = |v|        dg = (dw . v) / n        dv = g / n (dw - v (dw . v) / n^2)
//
// Norms and products are summed in double, independent of the training precision: v and g are the fp32 masters (Puri
// 2018, section V, accumulates these norms in fp32).
#include "ops/layers/weight_norm.h"

#include "lmx/ops.h"
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

// w and the norms of v's rows. They are computed once until v or g changes, for all micro-batches and replicas, and the
// packed form of w is stored with them.
struct Normed {
  Var w;
  Tensor norms;  // (N) f64
};

template <class T>
Normed normed(Context& ctx, const Tensor& v, const Tensor& g) {
  Tensor w = ctx.empty(v.shape(), v.dtype(), MemClass::parameters);
  Tensor norms = ctx.empty(g.shape(), DType::f64, MemClass::parameters);
  run_kernel(ctx,
             WeightNormForward<T>{v.data<T>(), g.data<T>(), w.data<T>(), norms.data<double>(), v.dim(0), v.dim(1)});
  return {Var(std::move(w)), std::move(norms)};
}

template <class T>
void backward(Context& ctx, const Var& v, const Var& g, const Tensor& dw, const Tensor& norms) {
  Tensor dv = v.value().like(MemClass::gradients), dg = g.value().like(MemClass::gradients);
  run_kernel(ctx, WeightNormBackward<T>{v.value().data<T>(), g.value().data<T>(), dw.data<T>(), norms.data<double>(),
                                        dv.data<T>(), dg.data<T>(), dv.dim(0), dv.dim(1)});
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
