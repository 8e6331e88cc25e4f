// Softmax along one dimension.
//
//   softmax      y_i = exp(x_i) / sum_j exp(x_j)          dx_i = y_i (dy_i - sum_j y_j dy_j)
//   log_softmax  y_i = x_i - log sum_j exp(x_j)           dx_i = dy_i - exp(y_i) sum_j dy_j
#include "ops/softmax/softmax.h"

#include "lmx/array_ops.h"
#include "ops/array/broadcast.h"

namespace lmx {
namespace {

using namespace ops;

// Softmax over the last dimension.
Var last_softmax(Context& ctx, const char* op, const Var& x, bool logarithm) {
  const Matrix m = fold(x.shape());
  Tensor y = x.value().like(MemClass::activations);
  with_values(op, y, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, SoftmaxForward<T>{x.value().data<T>(), y.data<T>(), m.rows, m.cols, logarithm});
  });
  Var out(y);
  if (!recording(ctx, {&x})) return out;
  ctx.tape->record(op, {x}, {out}, [&ctx, x, out, m, op, logarithm](Tape&) {
    const Tensor dy = Tape::grad_of(out);
    Tensor dx = dy.like(MemClass::activations);
    with_values(op, dx, [&](auto zero) {
      using T = decltype(zero);
      run_kernel(ctx, SoftmaxBackward<T>{out.value().data<T>(), dy.data<T>(), dx.data<T>(), m.rows, m.cols, logarithm});
    });
    Tape::accumulate(ctx, x, dx);
  });
  return out;
}

// For any other dimension, moves that dimension to the end, applies last_softmax, and moves it back.
Var any_softmax(Context& ctx, const char* op, const Var& x, int dim, bool logarithm) {
  const int d = dimension(op, dim, x.shape());
  if (x.shape()[d] == 0) throw UserError(str("[", op, "] dimension ", dim, " of x ", x.shape(), ": no elements"));
  if (d == x.shape().rank() - 1) return last_softmax(ctx, op, x, logarithm);
  return transpose(ctx, last_softmax(ctx, op, transpose(ctx, x, d, -1), logarithm), d, -1);
}

}  // namespace

Var softmax(Context& ctx, const Var& x, int dim) {
  return any_softmax(ctx, "softmax", x, dim, false);
}
Var log_softmax(Context& ctx, const Var& x, int dim) {
  return any_softmax(ctx, "log_softmax", x, dim, true);
}

}  // namespace lmx
