// Vectorised functions of the host over one row of values in host memory: for CPU kernels, and for code that selects
// among rows on the host, such as beam search. The same row gives the same bits in every call.
#pragma once

#include <cstdint>

#include "lmx/api.h"

namespace lmx {

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
