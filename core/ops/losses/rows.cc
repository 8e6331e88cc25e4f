
#include <cmath>
#include <limits>

#include "lmx/kernels.h"
#include "lmx/math.h"

namespace lmx {
namespace {

template <class T>
LMX_SIMD T max_kernel(const T* x, int64_t n) {
  T most = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

template <class T>
LMX_SIMD T dot_kernel(const T* a, const T* b, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
LMX_SIMD T exp_sum(T* x, T scale, T shift, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    x[i] = fast_exp(scale * x[i] - shift);
    sum += x[i];
  }
  return sum;
}

template <class T>
LMX_SIMD void multiply_row(T* x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <class T>
T softmax(T* x, T scale, int64_t n) {
  const T shift = scale * max_kernel<T>(x, n);
  const T sum = exp_sum<T>(x, scale, shift, n);
  multiply_row<T>(x, T(1) / sum, n);
  return shift + std::log(sum);
}

}  // namespace

float max_of(const float* x, int64_t n) {
  return max_kernel<float>(x, n);
}
double max_of(const double* x, int64_t n) {
  return max_kernel<double>(x, n);
}
float dot(const float* a, const float* b, int64_t n) {
  return dot_kernel<float>(a, b, n);
}
double dot(const double* a, const double* b, int64_t n) {
  return dot_kernel<double>(a, b, n);
}
float softmax_in_place(float* x, float scale, int64_t n) {
  return softmax<float>(x, scale, n);
}
double softmax_in_place(double* x, double scale, int64_t n) {
  return softmax<double>(x, scale, n);
}

}  // namespace lmx
