// Root mean square normalisation (Zhang and Sennrich 2019, equation 4) over the last dimension of size D:
//
//   r = 1 / sqrt(mean(x^2) + eps)        y = x r gain
//   g = dy gain        dx = r (g - x r^2 mean(g x))        dgain = sum over rows of dy x r
#include "ops/layers/rms_norm.h"

#include "lmx/array_ops.h"
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

void check(const Tensor& x, const Tensor& gain, double eps) {
  if (x.rank() < 1 || x.dim(-1) == 0 || gain.shape() != Shape{x.dim(-1)})
    throw UserError(str("[rms_norm] x ", x.shape(), " and gain ", gain.shape(), ": (..., D) and (D) expected, D >= 1"));
  if (!(eps >= 0)) throw UserError(str("[rms_norm] eps ", eps, ": must not be negative"));
  check_same_type("rms_norm", "x", x, "gain", gain);
}

struct Saved {
  Var x, gain, out;
  Tensor scales;  // (rows) r
};

template <class T>
void backward(Context& ctx, const Saved& s) {
  const Tensor dy = Tape::grad_of(s.out);
  const Matrix m = fold(s.x.shape());
  const T *x = s.x.value().data<T>(), *scales = s.scales.data<T>(), *pdy = dy.data<T>();
  if (s.x.requires_grad()) {
    Tensor dx = dy.like(MemClass::activations);
    run_kernel(ctx, RmsNormBackward<T>{x, s.gain.value().data<T>(), scales, pdy, dx.data<T>(), m.rows, m.cols});
    Tape::accumulate(ctx, s.x, dx);
  }
  if (!s.gain.requires_grad()) return;
  Tensor dgain = ctx.empty({m.cols}, dtype_of<T>, MemClass::gradients);
  run_kernel(ctx, RmsNormWeights<T>{x, scales, pdy, dgain.data<T>(), m.rows, m.cols});
  Tape::accumulate(ctx, s.gain, dgain);
}

template <class T>
Var typed(Context& ctx, const Var& x, const Var& gain, double eps) {
  const Matrix m = fold(x.shape());
  Tensor y = x.value().like(MemClass::activations);
  Tensor scales = ctx.empty({m.rows}, dtype_of<T>);
  const Saved saved{x, gain, Var(y), scales};
  run_kernel(ctx, RmsNormForward<T>{x.value().data<T>(), gain.value().data<T>(), y.data<T>(), scales.data<T>(), m.rows,
                                    m.cols, static_cast<T>(eps), target_of_copy(ctx, saved.out)});
  if (recording(ctx, {&x, &gain}))
    ctx.tape->record("rms_norm", {x, gain}, {saved.out}, [&ctx, saved](Tape&) { backward<T>(ctx, saved); });
  return saved.out;
}

}  // namespace

Var rms_norm(Context& ctx, const Var& x, const Var& gain, double eps) {
  check(x.value(), gain.value(), eps);
  return with_values("rms_norm", x.value(), [&](auto zero) { return typed<decltype(zero)>(ctx, x, gain, eps); });
}

}  // namespace lmx
