// The gated units of Shazeer 2020, section 2, by the kernels of a feed-forward layer
// (ops/feed_forward/feed_forward.cc).
#include "lmx/array_ops.h"
#include "ops/common.h"
#include "ops/feed_forward/feed_forward.h"

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
    run_kernel(
        ctx, FeedForwardUnits<SwigluUnits, T>{x.value().data<T>(), nullptr, y.data<T>(), {}, nullptr, m.rows, m.cols});
  });
  if (recording(ctx, {&x})) {
    ctx.tape->record("swiglu", {x}, {out}, [&ctx, x, out, m](Tape&) {
      Tensor dx = x.value().like(MemClass::activations);
      with_values("swiglu", dx, [&](auto zero) {
        using T = decltype(zero);
        run_kernel(ctx,
                   FeedForwardUnitsBackward<SwigluUnits, T>{x.value().data<T>(), nullptr, Tape::grad_of(out).data<T>(),
                                                            dx.data<T>(), nullptr, m.rows, m.cols, 1, 0});
      });
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

}  // namespace lmx
