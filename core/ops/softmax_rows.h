// Row kernels of the softmax losses, vectorised. Sums run in blocks whose float partial sums are added in double.
#pragma once

#include <cstdint>

#include "lmx/tensor.h"

namespace lmx::ops {

// log sum_j exp(x_j), computed from the row's maximum.
double log_sum_exp(const float* x, int64_t n);
double log_sum_exp(const double* x, int64_t n);
// y_j = factor exp(x_j - lse); y may be x.
void softmax_row(const float* x, float* y, double lse, double factor, int64_t n);
void softmax_row(const double* x, double* y, double lse, double factor, int64_t n);
// x += b
void add_bias(float* x, const float* b, int64_t n);
void add_bias(double* x, const double* b, int64_t n);

// The classes of the targets, for messages: 10 classes of "w" (10, 4).
struct Classes {
  int64_t count;
  const char* tensor;
  const Shape& shape;
};
// UserErrors of a loss: targets i32 (n) in [0, V); weights f32 (n) or undefined.
void check_targets(const char* op, const Tensor& targets, const Tensor& weights, int64_t n, const Classes& classes);
// h (n, D), w (V, D), b (V) or undefined.
void check_output_layer(const char* op, const Tensor& h, const Tensor& w, const Tensor& b);

inline double weight_of(const Tensor& weights, int64_t i) {
  return weights.defined() ? static_cast<double>(weights.data<float>()[i]) : 1.0;
}

}  // namespace lmx::ops
