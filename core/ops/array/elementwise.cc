// Elementwise functions; their derivative is a function of the input x and the value y.
//
//   tanh       dx = (1 - y^2) dy                      sigmoid  dx = y (1 - y) dy
//   relu       dx = dy where y > 0
//   exp        dx = y dy                              log   dx = dy / x
//   sqrt       dx = dy / (2 y)                        pow   dx = p x^(p - 1) dy
//   silu       y = x s(x), s the sigmoid              dx = s (1 + x (1 - s)) dy
//   gelu       y = x Phi(x)                           dx = (Phi(x) + x phi(x)) dy
//   gelu_tanh  y = x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)
//              dx = ((1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2) dy,  u' = sqrt(2 / pi) (1 + 3 0.044715 x^2)
//
// phi and Phi: density and distribution of the standard normal.
#include "ops/array/elementwise.h"

#include "lmx/array_ops.h"
#include "lmx/ops.h"
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

template <class F>
Var elementwise(Context& ctx, const Var& x, F f = {}) {
  Tensor y = x.value().like(MemClass::activations);
  const Var out(y);
  const OperandTarget copy = kFeedsProducts<F> ? target_of_copy(ctx, out) : OperandTarget();
  with_values(F::kName, y, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Elementwise<F, T>{{f}, x.value().data<T>(), y.data<T>(), y.numel(), copy});
  });
  if (recording(ctx, {&x})) {
    ctx.tape->record(F::kName, {x}, {out}, [&ctx, f, x, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      Tensor dx = dy.like(MemClass::activations);
      const Tensor operand = kFeedsProducts<F> ? operand_beside(ctx, dx) : Tensor();
      with_values(F::kName, dx, [&](auto zero) {
        using T = decltype(zero);
        run_kernel(ctx, ElementwiseBackward<F, T>{{f},
                                                  x.value().data<T>(),
                                                  out.value().data<T>(),
                                                  dy.data<T>(),
                                                  dx.data<T>(),
                                                  dx.numel(),
                                                  operand_target(ctx, operand)});
      });
      Tape::accumulate(ctx, x, dx, operand);
    });
  }
  return out;
}

}  // namespace

Var tanh(Context& ctx, const Var& x) {
  return elementwise<Tanh>(ctx, x);
}
Var sigmoid(Context& ctx, const Var& x) {
  return elementwise<Sigmoid>(ctx, x);
}
Var relu(Context& ctx, const Var& x) {
  return elementwise<Relu>(ctx, x);
}
Var exp(Context& ctx, const Var& x) {
  return elementwise<Exp>(ctx, x);
}
Var log(Context& ctx, const Var& x) {
  return elementwise<Log>(ctx, x);
}
Var sqrt(Context& ctx, const Var& x) {
  return elementwise<Sqrt>(ctx, x);
}
Var pow(Context& ctx, const Var& x, double exponent) {
  return exponent == 2 ? elementwise<Square>(ctx, x) : elementwise<Pow>(ctx, x, {exponent});
}
Var silu(Context& ctx, const Var& x) {
  return elementwise<Silu>(ctx, x);
}
Var gelu(Context& ctx, const Var& x) {
  return elementwise<Gelu>(ctx, x);
}
Var gelu_tanh(Context& ctx, const Var& x) {
  return elementwise<GeluTanh>(ctx, x);
}

}  // namespace lmx
