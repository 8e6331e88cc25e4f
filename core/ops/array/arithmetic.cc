// Scaled, shifted and summed tensors, and tensors with another shape.
//
//   scale       y = s x            dx = s dy
//   add_scalar  y = x + c          dx = dy
//   sum         y = sum_i x_i      dx_i = dy
//   reshape     y = x              dx = dy
#include "ops/array/arithmetic.h"

#include "lmx/array_ops.h"
#include "ops/array/broadcast.h"

namespace lmx {

using namespace ops;

Var scale(Context& ctx, const Var& x, double factor) {
  Tensor y = x.value().clone(MemClass::activations);
  scale_in_place(ctx, y, factor);
  Var out(y);
  if (recording(ctx, {&x})) {
    ctx.tape->record("scale", {x}, {out}, [&ctx, x, out, factor](Tape&) {
      Tensor dx = Tape::grad_of(out).clone();
      scale_in_place(ctx, dx, factor);
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

Var add_scalar(Context& ctx, const Var& x, double constant) {
  Tensor y = x.value().like(MemClass::activations);
  with_values("add_scalar", y, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, AddScalar<T>{x.value().data<T>(), y.data<T>(), y.numel(), static_cast<T>(constant)});
  });
  Var out(y);
  if (recording(ctx, {&x})) {
    ctx.tape->record("add_scalar", {x}, {out}, [&ctx, x, out](Tape&) { Tape::accumulate(ctx, x, Tape::grad_of(out)); });
  }
  return out;
}

Var sum(Context& ctx, const Var& x) {
  Var out(sum_middle(ctx, x.value(), {1, x.value().numel(), 1}, Shape{1}));
  if (recording(ctx, {&x})) {
    ctx.tape->record("sum", {x}, {out}, [&ctx, x, out](Tape&) {
      Tape::accumulate(ctx, x, repeated(ctx, Tape::grad_of(out).reshape(Shape{}), x.shape()));
    });
  }
  return out;
}

Var reshape(Context& ctx, const Var& x, Shape shape) {
  int64_t known = 1;
  int unknown = 0;
  for (const int64_t d : shape.dims()) {
    if (d == -1) {
      ++unknown;
    } else {
      known *= d;
    }
  }
  const int64_t n = x.value().numel();
  if (unknown > 1 || known < 0 || (unknown == 1 ? known == 0 || n % known != 0 : known != n)) {
    throw UserError(str("[reshape] x ", x.shape(), " to ", shape, ": ", n, " elements do not fit"));
  }
  Var out(x.value().reshape(shape));
  if (recording(ctx, {&x})) {
    ctx.tape->record("reshape", {x}, {out},
                     [&ctx, x, out](Tape&) { Tape::accumulate(ctx, x, Tape::grad_of(out).reshape(x.shape())); });
  }
  return out;
}

}  // namespace lmx
