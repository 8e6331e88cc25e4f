// y = x w^T + b:  dx = dy w,  dw = dy^T x,  db = the column sums of dy.
#include "ops/layers/linear.h"

#include "backend/gemm_kernel.h"
#include "ops/array/broadcast.h"

namespace lmx {
namespace ops {

void check_linear(const LinearNames& name, const Shape& x, const Tensor& w, const Var& b) {
  const auto fail = [&](const auto&... text) { throw UserError(str('[', name.op, "] ", text...)); };
  if (w.rank() != 2) fail(name.w, ' ', w.shape(), ": (N, K) expected");
  if (x.rank() < 1 || x[x.rank() - 1] != w.dim(1))
    fail(name.x, ' ', x, " and ", name.w, ' ', w.shape(), ": the last sizes must be equal");
  if (!b.defined()) return;
  if (b.shape() != Shape{w.dim(0)})
    fail(name.b, ' ', b.shape(), " for ", name.w, ' ', w.shape(), ": (", w.dim(0), ") expected");
  check_same_type(name.op, name.w, w, name.b, b.value());
}

Tensor linear_value(Context& ctx, const Tensor& x, const Tensor& w, const Var& b) {
  const DType type = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Shape shape = with_last(x.shape(), w.dim(0));
  if (b.defined() && x.dim(-1) > 0 && gemm_adds_bias(ctx, x.dtype())) {
    Tensor y = ctx.empty(shape, type);
    if (gemm_with_bias(ctx, x, w, b.value(), y)) return y;
  }
  Tensor y = b.defined() ? repeated(ctx, b.value(), shape) : ctx.empty(shape, type);
  gemm(ctx, x, false, w, true, y, b.defined() ? 1.0f : 0.0f);
  return y;
}

}  // namespace ops

using namespace ops;

Var linear(Context& ctx, const Var& x, const Var& w, const Var& b) {
  check_linear({"linear", "x", "w", "b"}, x.shape(), w.value(), b);
  check_same_type("linear", "x", x.value(), "w", w.value());
  const Tensor xc = compute_copy(ctx, x);
  Var out(linear_value(ctx, xc, compute_copy(ctx, w), b));
  if (recording(ctx, {&x, &w, &b})) {
    ctx.tape->record("linear", {x, w, b}, {out}, [&ctx, x, w, b, xc, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      const Tensor dyc = Tape::operand_of_grad(ctx, out);
      if (x.requires_grad()) {
        Tape::Sink dx = Tape::sink(ctx, x);
        gemm(ctx, dyc, false, compute_copy(ctx, w), false, dx.grad, dx.beta);
      }
      add_weight_gradient(ctx, w, dyc, xc);
      add_bias_gradient(ctx, b, dy);
    });
  }
  return out;
}

}  // namespace lmx
