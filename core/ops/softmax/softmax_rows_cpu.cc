#include "ops/softmax/softmax_rows.h"

#include <algorithm>
#include <cmath>

#include "lmx/kernels.h"
#include "lmx/math.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD T sum_exp_kernel(const T* x, T shift, int64_t n) {
  T s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += fast_exp(x[i] - shift);
  return s;
}

template <class T>
LMX_SIMD void softmax_kernel(const T* x, T* y, T lse, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = softmax_value(x[i], lse, factor);
}

template <class T>
double lse(const T* x, int64_t n) {
  constexpr int64_t kBlock = 2048;
  const T m = max_of(x, n);
  double s = 0;
  for (int64_t b = 0; b < n; b += kBlock)
    s += static_cast<double>(sum_exp_kernel<T>(x + b, m, std::min(kBlock, n - b)));
  return static_cast<double>(m) + std::log(s);
}

}  // namespace

double log_sum_exp(const float* x, int64_t n) {
  return lse(x, n);
}
double log_sum_exp(const double* x, int64_t n) {
  return lse(x, n);
}
void softmax_row(const float* x, float* y, double lse, double factor, int64_t n) {
  softmax_kernel<float>(x, y, static_cast<float>(lse), static_cast<float>(factor), n);
}
void softmax_row(const double* x, double* y, double lse, double factor, int64_t n) {
  softmax_kernel<double>(x, y, lse, factor, n);
}

}  // namespace lmx::ops
