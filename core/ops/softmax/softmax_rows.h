// Functions of the host over one row of logits, vectorised, for the CPU kernels of softmax and of its losses. Sums run
// in blocks whose float partial sums are added in double.
#pragma once

#include <cstdint>

#include "lmx/math.h"

namespace lmx::ops {

// An element of softmax_row(), for kernels of all devices.
template <class T>
LMX_HD inline T softmax_value(T x, T lse, T factor) {
  return factor * fast_exp(x - lse);
}

// log sum_j exp(x_j), computed from the row's maximum.
double log_sum_exp(const float* x, int64_t n);
double log_sum_exp(const double* x, int64_t n);
// y_j = factor exp(x_j - lse); y may be x.
void softmax_row(const float* x, float* y, double lse, double factor, int64_t n);
void softmax_row(const double* x, double* y, double lse, double factor, int64_t n);

}  // namespace lmx::ops
