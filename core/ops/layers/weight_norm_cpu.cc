#include "ops/layers/weight_norm.h"

#include <cmath>

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD double dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

template <class T>
LMX_SIMD void scaled(const T* v, T* w, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) w[i] = factor * v[i];
}

template <class T>
LMX_SIMD void backward_row(const T* v, const T* dw, T* dv, T factor, T along, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dv[i] = weight_norm_slope(v[i], dw[i], factor, along);
}

template <class T>
void forward(Context&, const WeightNormForward<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* v = a.v + r * a.cols;
      const double norm = a.norms[r] = std::sqrt(dot(v, v, a.cols));
      scaled(v, a.w + r * a.cols, weight_norm_factor(a.g[r], norm), a.cols);
    }
  });
}

template <class T>
void backward(Context&, const WeightNormBackward<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * a.cols;
      const double inverse = a.norms[r] > 0 ? 1 / a.norms[r] : 0;
      const double along = dot(a.dw + at, a.v + at, a.cols) * inverse;
      a.dg[r] = static_cast<T>(along);
      backward_row(a.v + at, a.dw + at, a.dv + at, static_cast<T>(static_cast<double>(a.g[r]) * inverse),
                   static_cast<T>(along * inverse), a.cols);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::ops
