#include "ops/layers/rms_norm.h"

#include <cmath>

#include "ops/common.h"

namespace lmx::ops {
namespace {

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
  for (int64_t i = 0; i < d; ++i) dx[i] = rms_norm_slope(x[i], gain[i], dy[i], r, along);
}

// Adds the contribution of one row to columns [0, n) of dgain.
template <class T>
LMX_SIMD void add_scaled_row(const T* x, const T* dy, T* dgain, T r, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dgain[i] += dy[i] * x[i] * r;
}

template <class T>
void forward(Context&, const RmsNormForward<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      a.scales[r] = forward_row<T>(a.x + r * a.cols, a.gain, a.y + r * a.cols, a.eps, a.cols);
  });
}

template <class T>
void backward(Context&, const RmsNormBackward<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * a.cols;
      backward_row<T>(a.x + at, a.gain, a.dy + at, a.dx + at, a.scales[r], a.cols);
    }
  });
}

template <class T>
void weights(Context&, const RmsNormWeights<T>& a) {
  parallel_for(a.cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(a.rows, 1)), [&](int64_t begin, int64_t end) {
    std::fill(a.dgain + begin, a.dgain + end, T(0));
    for (int64_t r = 0; r < a.rows; ++r) {
      const int64_t at = r * a.cols + begin;
      add_scaled_row<T>(a.x + at, a.dy + at, a.dgain + begin, a.scales[r], end - begin);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>,
                        weights<float>, weights<double>);

}  // namespace
}  // namespace lmx::ops
