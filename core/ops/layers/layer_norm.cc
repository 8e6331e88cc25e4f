// Layer normalisation (Ba et al. 2016) over the last dimension of size D:
//
//   xhat = (x - mean) r,  r = 1 / sqrt(var + eps)        y = xhat gain + bias
//   g = dy gain           dx = r (g - mean(g) - xhat mean(g xhat))
//   dgain = sum over rows of dy xhat                     dbias = sum over rows of dy
#include "ops/layers/layer_norm.h"

#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

void check(const Tensor& x, const Tensor& gain, const Tensor& bias, double eps) {
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[layer_norm] x ", x.shape(), ", gain ", gain.shape(), ", bias ", bias.shape(), ": ", why));
  };
  if (x.rank() < 1 || x.dim(-1) == 0) fail("x needs a last dimension of at least 1");
  const Shape d{x.dim(-1)};
  if (gain.shape() != d || bias.shape() != d) fail(str("gain and bias must be ", d));
  if (!(eps >= 0)) throw UserError(str("[layer_norm] eps ", eps, ": must not be negative"));
  check_same_type("layer_norm", "x", x, "gain", gain);
  check_same_type("layer_norm", "x", x, "bias", bias);
}

struct Saved {
  Var x, gain, bias, out;
  Tensor stats;  // (rows, 2)
};

template <class T>
void backward(Context& ctx, const Saved& s) {
  const Tensor dy = Tape::grad_of(s.out);
  const Matrix m = fold(s.x.shape());
  const T *x = s.x.value().data<T>(), *stats = s.stats.data<T>(), *pdy = dy.data<T>();
  if (s.x.requires_grad()) {
    Tensor dx = dy.like(MemClass::activations);
    run_kernel(ctx, LayerNormBackward<T>{x, s.gain.value().data<T>(), stats, pdy, dx.data<T>(), m.rows, m.cols});
    Tape::accumulate(ctx, s.x, dx);
  }
  if (!s.gain.requires_grad() && !s.bias.requires_grad()) return;
  Tensor dgain = ctx.empty({m.cols}, dtype_of<T>, MemClass::gradients), dbias = dgain.like(MemClass::gradients);
  run_kernel(ctx, LayerNormWeights<T>{x, stats, pdy, dgain.data<T>(), dbias.data<T>(), m.rows, m.cols});
  Tape::accumulate(ctx, s.gain, dgain);
  Tape::accumulate(ctx, s.bias, dbias);
}

template <class T>
Var typed(Context& ctx, const Var& x, const Var& gain, const Var& bias, double eps) {
  const Matrix m = fold(x.shape());
  Tensor y = x.value().like(MemClass::activations);
  Tensor stats = ctx.empty({m.rows, 2}, dtype_of<T>);
  const Saved saved{x, gain, bias, Var(y), stats};
  run_kernel(ctx,
             LayerNormForward<T>{x.value().data<T>(), gain.value().data<T>(), bias.value().data<T>(), y.data<T>(),
                                 stats.data<T>(), m.rows, m.cols, static_cast<T>(eps), target_of_copy(ctx, saved.out)});
  if (recording(ctx, {&x, &gain, &bias}))
    ctx.tape->record("layer_norm", {x, gain, bias}, {saved.out}, [&ctx, saved](Tape&) { backward<T>(ctx, saved); });
  return saved.out;
}

}  // namespace

Var layer_norm(Context& ctx, const Var& x, const Var& gain, const Var& bias, double eps) {
  check(x.value(), gain.value(), bias.value(), eps);
  return with_values("layer_norm", x.value(),
                     [&](auto zero) { return typed<decltype(zero)>(ctx, x, gain, bias, eps); });
}

}  // namespace lmx
