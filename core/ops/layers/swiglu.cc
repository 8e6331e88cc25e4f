// The gated units of Shazeer 2020, section 2. For a gate g and a value v, s being the sigmoid:
//
//   y = g s(g) v        dg = dy v s(g) (1 + g (1 - s(g)))        dv = dy g s(g)
#include "ops/layers/swiglu.h"

#include "lmx/array_ops.h"
#include "ops/common.h"

namespace lmx {

using namespace ops;

Var swiglu(Context& ctx, const Var& x) {
  const Shape& s = x.shape();
  if (s.rank() < 1 || s[s.rank() - 1] % 2 != 0)
    throw UserError(str("[swiglu] x ", s, ": (..., 2 F) expected, F gates and F values"));
  const Matrix m = fold(with_last(s, s[s.rank() - 1] / 2));
  const Var out(ctx.empty(with_last(s, m.cols), x.value().dtype()));
  with_values("swiglu", x.value(), [&](auto zero) {
    using T = decltype(zero);
    Tensor y = out.value();
    run_kernel(ctx, Swiglu<T>{x.value().data<T>(), y.data<T>(), m.rows, m.cols, target_of_copy(ctx, out)});
  });
  if (recording(ctx, {&x})) {
    ctx.tape->record("swiglu", {x}, {out}, [&ctx, x, out, m](Tape&) {
      const Tensor& dy = Tape::grad_of(out);
      Tensor dx = x.value().like(MemClass::activations);
      const Tensor operand = operand_beside(ctx, dx);
      with_values("swiglu", dx, [&](auto zero) {
        using T = decltype(zero);
        run_kernel(ctx, SwigluBackward<T>{x.value().data<T>(), dy.data<T>(), dx.data<T>(), m.rows, m.cols,
                                          operand_target(ctx, operand)});
      });
      Tape::accumulate(ctx, x, dx, operand);
    });
  }
  return out;
}

}  // namespace lmx
