// Root mean square normalisation (Zhang and Sennrich 2019, equation 4) over the last dimension of size D:
//
//   r = 1 / sqrt(mean(x^2) + eps)        y = x r gain
//   g = dy gain        dx = r (g - x r^2 mean(g x))        dgain = sum over rows of dy x r
#include <cmath>

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

template <class T>
LMX_SIMD T forward_row(const T* x, const T* gain, T* y, T eps, int64_t d) {
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < d; ++i) squares += x[i] * x[i];
  const T r = T(1) / std::sqrt(squares / static_cast<T>(d) + eps);
  for (int64_t i = 0; i < d; ++i) y[i] = x[i] * r * gain[i];
  return r;
}

template <class T>
LMX_SIMD void backward_row(const T* x, const T* gain, const T* dy, T* dx, T r, int64_t d) {
  T projected = 0;
#pragma omp simd reduction(+ : projected)
  for (int64_t i = 0; i < d; ++i) projected += dy[i] * gain[i] * x[i];
  const T along = projected * r * r / static_cast<T>(d);
  for (int64_t i = 0; i < d; ++i) dx[i] = r * (dy[i] * gain[i] - x[i] * along);
}

// Adds the contribution of one row to columns [0, n) of dgain.
template <class T>
LMX_SIMD void add_row(const T* x, const T* dy, T* dgain, T r, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dgain[i] += dy[i] * x[i] * r;
}

template <class T>
void backward(Context& ctx, const Var& x, const Var& gain, const Tensor& dy, const std::vector<T>& scales) {
  const Matrix m = fold(x.shape());
  const T *px = x.value().data<T>(), *pdy = dy.data<T>(), *pg = gain.value().data<T>();
  if (x.requires_grad()) {
    Tensor dx = dy.like(MemClass::activations);
    T* pdx = dx.data<T>();
    parallel_for(m.rows, row_grain(m.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = r * m.cols;
        backward_row<T>(px + at, pg, pdy + at, pdx + at, scales[static_cast<size_t>(r)], m.cols);
      }
    });
    Tape::accumulate(ctx, x, dx);
  }
  if (!gain.requires_grad()) return;
  Tensor dgain = ctx.zeros({m.cols}, dtype_of<T>, MemClass::gradients);
  T* to = dgain.data<T>();
  // Threads share columns, so that the order of additions is fixed.
  parallel_for(m.cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(m.rows, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < m.rows; ++r) {
      const int64_t at = r * m.cols + begin;
      add_row<T>(px + at, pdy + at, to + begin, scales[static_cast<size_t>(r)], end - begin);
    }
  });
  Tape::accumulate(ctx, gain, dgain);
}

template <class T>
Var typed(Context& ctx, const Var& x, const Var& gain, T eps) {
  const Matrix m = fold(x.shape());
  Tensor y = x.value().like(MemClass::activations);
  std::vector<T> scales(static_cast<size_t>(m.rows));
  const T *px = x.value().data<T>(), *pg = gain.value().data<T>();
  T* py = y.data<T>();
  parallel_for(m.rows, row_grain(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      scales[static_cast<size_t>(r)] = forward_row<T>(px + r * m.cols, pg, py + r * m.cols, eps, m.cols);
  });
  Var out(y);
  if (recording(ctx, {&x, &gain})) {
    ctx.tape->record("rms_norm", {x, gain}, {out}, [&ctx, x, gain, out, scales = std::move(scales)](Tape&) {
      backward<T>(ctx, x, gain, Tape::grad_of(out), scales);
    });
  }
  return out;
}

}  // namespace

Var rms_norm(Context& ctx, const Var& x, const Var& gain, double eps) {
  check(x.value(), gain.value(), eps);
  return with_values("rms_norm", x.value(),
                     [&](auto zero) { return typed<decltype(zero)>(ctx, x, gain, static_cast<decltype(zero)>(eps)); });
}

}  // namespace lmx
