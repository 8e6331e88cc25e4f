// Elementary functions without branches, for loops that the compiler vectorises, and functions of a row of values. CUDA
// kernels use the same source of the elementary functions.
//
// float: polynomials with an error of at most 2 ulp (3 for sigmoid); zeros, infinities, NaN, overflow and underflow are
// correct. double: the standard library, for gradient checks. fast_exp rounds a subnormal result twice. On a GPU float
// exponentials and quotients use the instructions of its special function units: 2 ulp each, 5 for tanh and sigmoid.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "lmx/api.h"
#include "lmx/dtype.h"

namespace lmx {

namespace math {

LMX_HD inline uint32_t bits(float x) {
  return float_bits(x);
}
LMX_HD inline float from_bits(uint32_t u) {
  return float_of_bits(u);
}

// e^x = 2^n e^r with |r| <= ln2 / 2. 2^n is applied as two factors, so results below 2^-126 and above 2^127 need no
// special case. Arguments outside [-104, 89] give 0 and infinity in any case.
LMX_HD inline float exp(float x) {
#if defined(__CUDA_ARCH__)
  return ::expf(x);
#else
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which is in the low bits
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float t = x * 1.442695041f + kRound;
  const uint32_t n = bits(t) - 0x4B400000u;  // kRound's bits
  const float k = t - kRound;
  float r = x - k * 0.693359375f;  // ln2 in two parts; products of the first with k are exact
  r = r + k * 2.12194440e-4f;
  float p = 1.392621347e-03f;
  p = p * r + 8.363202972e-03f;
  p = p * r + 4.166655444e-02f;
  p = p * r + 1.666657685e-01f;
  p = p * r + 0.5f;
  p = (p * r) * r + r;
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(n) >> 1);
  const float first = from_bits((half + 127u) << 23), second = from_bits((n - half + 127u) << 23);
  return (p + 1.0f) * first * second;
#endif
}

// a / b for 1 <= b.
LMX_HD inline float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdividef(a, b);  // 0 for b > 2^126
#else
  return a / b;
#endif
}

// Near zero: x (1 + z P(z)) with z = x^2. Elsewhere: 1 - 2 / (e^2|x| + 1) with x's sign.
LMX_HD inline float tanh(float x) {
  const uint32_t sign = bits(x) & 0x80000000u;
  const float a = from_bits(bits(x) ^ sign);
  const float z = x * x;
  float p = 2.292744816e-03f;
  p = p * z - 8.343945516e-03f;
  p = p * z + 2.176891865e-02f;
  p = p * z - 5.395925958e-02f;
  p = p * z + 1.333330356e-01f;
  p = p * z - 3.333333317e-01f;
  const float near = a + a * (z * p);
  const float far = 1.0f - quotient(2.0f, exp(2.0f * a) + 1.0f);
  return from_bits(bits(a < 0.625f ? near : far) | sign);
}

// 1 / (1 + e^-x), computed from e^-|x| so that the left tail keeps its relative precision.
LMX_HD inline float sigmoid(float x) {
  const float e = exp(x < 0.0f ? x : -x);
  return quotient(x < 0.0f ? e : 1.0f, 1.0f + e);
}

// x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f - f^2/2 + f^3 P(f).
LMX_HD inline float log(float x) {
  // Factors instead of branches: the compiler does not vectorise an operation that only one branch needs.
  const float up = x < 1.17549435e-38f ? 8388608.0f : 1.0f, down = x < 1.17549435e-38f ? 23.0f : 0.0f;
  const uint32_t shifted = bits(x * up) - 0x3F3504F3u;  // sqrt(1/2)'s bits: now the exponent changes at this value
  const float k = static_cast<float>(static_cast<int32_t>(shifted) >> 23) - down;
  const float f = from_bits((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
  float p = 6.971611471e-02f;
  p = p * f - 1.147973385e-01f;
  p = p * f + 1.168541992e-01f;
  p = p * f - 1.242568733e-01f;
  p = p * f + 1.424905765e-01f;
  p = p * f - 1.666780232e-01f;
  p = p * f + 2.000071575e-01f;
  p = p * f - 2.499999696e-01f;
  p = p * f + 3.333333118e-01f;
  const float z = f * f;
  float y = z * f * p - k * 2.12194440e-4f;
  y = y - 0.5f * z;
  y = (f + y) + k * 0.693359375f;
  const float infinity = from_bits(0x7F800000u);
  float special = x == infinity ? infinity : 0.0f;
  special = x == 0.0f ? -infinity : special;
  special = x >= 0.0f ? special : from_bits(0x7FC00000u);
  return y + special;
}

LMX_HD inline double exp(double x) {
  return ::exp(x);
}
LMX_HD inline double tanh(double x) {
  return ::tanh(x);
}
LMX_HD inline double sigmoid(double x) {
  return 1.0 / (1.0 + ::exp(-x));
}
LMX_HD inline double log(double x) {
  return ::log(x);
}

}  // namespace math

template <class T>
LMX_HD inline T fast_exp(T x) {
  return math::exp(x);
}
template <class T>
LMX_HD inline T fast_tanh(T x) {
  return math::tanh(x);
}
template <class T>
LMX_HD inline T fast_sigmoid(T x) {
  return math::sigmoid(x);
}
template <class T>
LMX_HD inline T fast_log(T x) {
  return math::log(x);
}

// Vectorised functions of the host over one row of values in host memory: for CPU kernels, and for code that selects
// among rows on the host, such as beam search. The same row gives the same bits in every call.

// The largest of x (n); -Inf for n = 0.
LMX_API float max_of(const float* x, int64_t n);
LMX_API double max_of(const double* x, int64_t n);
// sum_i a_i b_i, accumulated in the type of the values.
LMX_API float dot(const float* a, const float* b, int64_t n);
LMX_API double dot(const double* a, const double* b, int64_t n);
// x = softmax(scale x); returns log sum_i exp(scale x_i). REQUIRES: n > 0, scale > 0.
LMX_API float softmax_in_place(float* x, float scale, int64_t n);
LMX_API double softmax_in_place(double* x, double scale, int64_t n);

}  // namespace lmx
