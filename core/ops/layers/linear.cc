// y = x w^T + b:  dx = dy w,  dw = dy^T x,  db = the column sums of dy.
#include "backend/gemm_kernel.h"
#include "ops/array/broadcast.h"

namespace lmx {
namespace {

using namespace ops;

void check(const Tensor& x, const Tensor& w, const Var& b) {
  if (w.rank() != 2) throw UserError(str("[linear] w ", w.shape(), ": (N, K) expected"));
  if (x.rank() < 1 || x.dim(-1) != w.dim(1)) {
    throw UserError(str("[linear] x ", x.shape(), " and w ", w.shape(), ": the last sizes must be equal"));
  }
  check_same_type("linear", "x", x, "w", w);
  if (!b.defined()) return;
  if (b.shape() != Shape{w.dim(0)}) {
    throw UserError(str("[linear] b ", b.shape(), " for w ", w.shape(), ": (", w.dim(0), ") expected"));
  }
  check_same_type("linear", "w", w, "b", b.value());
}

// x w^T + b. On the CPU, in f64, and if the device has no product with a bias of these sizes, the product is added to
// the bias, which is first written to every row.
Tensor product(Context& ctx, const Tensor& x, const Tensor& w, const Var& b, const Shape& shape) {
  const DType type = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (b.defined() && x.dim(-1) > 0 && gemm_adds_bias(ctx, x.dtype())) {
    Tensor y = ctx.empty(shape, type);
    if (gemm_with_bias(ctx, x, w, b.value(), y)) return y;
  }
  Tensor y = b.defined() ? repeated(ctx, b.value(), shape) : ctx.empty(shape, type);
  gemm(ctx, x, false, w, true, y, b.defined() ? 1.0f : 0.0f);
  return y;
}

}  // namespace

Var linear(Context& ctx, const Var& x, const Var& w, const Var& b) {
  check(x.value(), w.value(), b);
  const Tensor xc = compute_copy(ctx, x);
  Var out(product(ctx, xc, compute_copy(ctx, w), b, with_last(x.shape(), w.value().dim(0))));
  if (recording(ctx, {&x, &w, &b})) {
    ctx.tape->record("linear", {x, w, b}, {out}, [&ctx, x, w, b, xc, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      const Tensor dyc = Tape::operand_of_grad(ctx, out);
      if (x.requires_grad()) {
        Tape::Sink dx = Tape::sink(ctx, x);
        gemm(ctx, dyc, false, compute_copy(ctx, w), false, dx.grad, dx.beta);
      }
      if (w.requires_grad()) {
        Tape::Sink dw = Tape::sink(ctx, w);
        gemm(ctx, dyc, true, xc, false, dw.grad, dw.beta);
      }
      if (b.requires_grad()) {
        Tape::Sink db = Tape::sink(ctx, b);
        column_sums(ctx, dy, db.grad, db.beta);
      }
    });
  }
  return out;
}

}  // namespace lmx
