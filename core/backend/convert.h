// Conversions and transpositions of whole matrices: the arguments of their kernels, and the loops of the CPU, which are
// vectorised and multi-threaded.
#pragma once

#include <cstdint>

#include "lmx/kernels.h"

namespace lmx {

// to = from in another type: f32 from and to bf16, f16 and f64
template <class From, class To>
struct Convert {
  static constexpr const char* kName = "convert";
  const From* from;  // (n)
  To* to;            // (n)
  int64_t n;
};

// to = from transposed, rounded to To
template <class From, class To>
struct Transpose {
  static constexpr const char* kName = "transpose";
  const From* from;  // (rows, cols)
  To* to;            // (cols, rows)
  int64_t rows, cols;
};

// The parts hi = bf16(x) and lo = bf16(x - hi) of an operand of a product, along its inner dimension: hi, hi, lo of a
// left operand and hi, lo, hi of a right one, so that one product of three times the inner size adds hi hi, hi lo and
// lo hi. The parts lack at most 2^-16 of x, and the product of two of the parts lo is at most 2^-16 of the product. An
// infinite x becomes NaN.
template <class T>
struct SplitOperand {
  static constexpr const char* kName = "split";
  const T* from;  // (n / width, width)
  bfloat16* to;   // (n / width, 3, width)
  int64_t n;
  int64_t width;  // a row if the inner dimension is that of the columns, otherwise the whole matrix
  bool left;
};

void to_bf16(const float* from, bfloat16* to, int64_t n);
void from_bf16(const bfloat16* from, float* to, int64_t n);
void to_f16(const float* from, float16* to, int64_t n);
void from_f16(const float16* from, float* to, int64_t n);
// to = from, rounded to the type and converted back to f32.
void round_to_bf16(const float* from, float* to, int64_t n);
void round_to_f16(const float* from, float* to, int64_t n);
// to (cols, rows) = from (rows, cols) transposed.
void transpose(const float* from, float* to, int64_t rows, int64_t cols);
void transpose(const bfloat16* from, bfloat16* to, int64_t rows, int64_t cols);
void transpose(const double* from, double* to, int64_t rows, int64_t cols);

// `count` numbers of `type` (bf16 or f16) at `data` as f32, written to `to`, or returned: (count).
void widen(Context& ctx, const void* data, DType type, int64_t count, float* to);
Tensor widened(Context& ctx, const void* data, DType type, int64_t count);

}  // namespace lmx
