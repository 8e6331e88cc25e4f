// Softmax along one dimension.
//
//   softmax      y_i = exp(x_i) / sum_j exp(x_j)          dx_i = y_i (dy_i - sum_j y_j dy_j)
//   log_softmax  y_i = x_i - log sum_j exp(x_j)           dx_i = dy_i - exp(y_i) sum_j dy_j
#include <cmath>

#include "lmx/array_ops.h"
#include "lmx/math.h"
#include "lmx/rows.h"
#include "ops/broadcast.h"
#include "ops/softmax_rows.h"

namespace lmx {
namespace {

using namespace ops;

template <class T>
LMX_SIMD void shift_row(const T* x, T* y, T by, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - by;
}
template <class T>
LMX_SIMD void softmax_slope(const T* y, const T* dy, T* dx, T delta, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - delta);
}
template <class T>
LMX_SIMD void log_softmax_slope(const T* y, const T* dy, T* dx, T sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - fast_exp(y[i]) * sum;
}
template <class T>
LMX_SIMD double sum_row(const T* x, int64_t n) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += static_cast<double>(x[i]);
  return s;
}

// Softmax over the last dimension.
Var last_softmax(Context& ctx, const char* op, const Var& x, bool logarithm) {
  const Matrix m = fold(x.shape());
  Tensor y = x.value().like(MemClass::activations);
  with_values(op, y, [&](auto zero) {
    using T = decltype(zero);
    const T* px = x.value().data<T>();
    T* py = y.data<T>();
    parallel_for(m.rows, row_grain(4 * m.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = r * m.cols;
        const double lse = log_sum_exp(px + at, m.cols);
        if (logarithm) {
          shift_row<T>(px + at, py + at, static_cast<T>(lse), m.cols);
        } else {
          softmax_row(px + at, py + at, lse, 1, m.cols);
        }
      }
    });
  });
  Var out(y);
  if (!recording(ctx, {&x})) return out;
  ctx.tape->record(op, {x}, {out}, [&ctx, x, out, m, op, logarithm](Tape&) {
    const Tensor dy = Tape::grad_of(out);
    Tensor dx = dy.like(MemClass::activations);
    with_values(op, dx, [&](auto zero) {
      using T = decltype(zero);
      const T *py = out.value().data<T>(), *pdy = dy.data<T>();
      T* pdx = dx.data<T>();
      parallel_for(m.rows, row_grain(m.cols), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin * m.cols; at < end * m.cols; at += m.cols) {
          if (logarithm) {
            log_softmax_slope<T>(py + at, pdy + at, pdx + at, static_cast<T>(sum_row<T>(pdy + at, m.cols)), m.cols);
          } else {
            softmax_slope<T>(py + at, pdy + at, pdx + at, dot(py + at, pdy + at, m.cols), m.cols);
          }
        }
      });
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
