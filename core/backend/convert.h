// Conversions and transpositions of whole matrices, vectorised and threaded.
#pragma once

#include <cstdint>

#include "lmx/dtype.h"

namespace lmx {

void to_bf16(const float* from, bfloat16* to, int64_t n);
void from_bf16(const bfloat16* from, float* to, int64_t n);
void to_f16(const float* from, float16* to, int64_t n);
void from_f16(const float16* from, float* to, int64_t n);
// to (cols, rows) = from (rows, cols) transposed.
void transpose(const float* from, float* to, int64_t rows, int64_t cols);
void transpose(const float* from, bfloat16* to, int64_t rows, int64_t cols);
void transpose(const bfloat16* from, bfloat16* to, int64_t rows, int64_t cols);
void transpose(const float16* from, float16* to, int64_t rows, int64_t cols);
void transpose(const double* from, double* to, int64_t rows, int64_t cols);

}  // namespace lmx
