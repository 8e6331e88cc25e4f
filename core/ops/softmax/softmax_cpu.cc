#include "ops/softmax/softmax.h"

#include "ops/common.h"
#include "ops/softmax/softmax_rows.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD void shift_row(const T* x, T* y, T by, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - by;
}
template <class T>
LMX_SIMD void softmax_slopes(const T* y, const T* dy, T* dx, T delta, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = softmax_slope(y[i], dy[i], delta);
}
template <class T>
LMX_SIMD void log_softmax_slopes(const T* y, const T* dy, T* dx, T sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = log_softmax_slope(y[i], dy[i], sum);
}

template <class T>
void forward(Context&, const SoftmaxForward<T>& a) {
  parallel_for(a.rows, row_grain(4 * a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * a.cols;
      const double lse = log_sum_exp(a.x + at, a.cols);
      if (a.logarithm) {
        shift_row<T>(a.x + at, a.y + at, static_cast<T>(lse), a.cols);
      } else {
        softmax_row(a.x + at, a.y + at, lse, 1, a.cols);
      }
    }
  });
}

template <class T>
void backward(Context&, const SoftmaxBackward<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *y = a.y + r * a.cols, *dy = a.dy + r * a.cols;
      T* dx = a.dx + r * a.cols;
      if (a.logarithm) {
        log_softmax_slopes<T>(y, dy, dx, static_cast<T>(sum_of(dy, a.cols)), a.cols);
      } else {
        softmax_slopes<T>(y, dy, dx, dot(y, dy, a.cols), a.cols);
      }
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::ops
