// Functions that several ops use: checks with their messages, dispatch on the value type, and kernels over whole
// tensors.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "lmx/autograd.h"
#include "lmx/context.h"
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"
#include "lmx/operand.h"
#include "lmx/ops.h"
#include "lmx/parallel.h"

namespace lmx::ops {

// Whether the processor has AVX-512, for functions that are written once for each size of vectors.
inline bool has_avx512() {
  static const bool has = __builtin_cpu_supports("x86-64-v4") != 0;
  return has;
}

// Whether products of this type are made by instructions for bf16 on this CPU.
inline bool multiplies_bf16(DType compute) {
  return compute == DType::bf16 && !multiplies_in_f32(compute);
}

template <class T>
struct Scale {
  static constexpr const char* kName = "scale";
  T* x;
  int64_t n;
  T factor;
};

// S: T, or on a GPU also the type of operands.
template <class T, class S = T>
struct ColumnSums {
  static constexpr const char* kName = "column_sums";
  const S* x;  // (rows, cols)
  T* sums;     // (cols)
  int64_t rows, cols;
  T beta;  // 1: the column sums are added to `sums`; 0: they replace them
};

template <class T>
struct GatherRows {
  static constexpr const char* kName = "gather_rows";
  const T* table;
  const int32_t* ids;  // (n)
  T* rows;             // (n, width)
  int64_t n, width;
};

// A tensor as rows of its last dimension: (B, T, D) becomes (B*T, D).
struct Matrix {
  int64_t rows, cols;
};
inline Matrix fold(const Shape& shape) {
  const int64_t cols = shape.rank() ? shape[shape.rank() - 1] : 1;
  int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return {rows, cols};
}

// `shape` with the last dimension replaced.
inline Shape with_last(Shape shape, int64_t last) {
  shape[shape.rank() - 1] = last;
  return shape;
}

// Calls f(double{}) or f(float{}), depending on the tensor's type.
template <class F>
decltype(auto) with_values(const char* op, const Tensor& t, F&& f) {
  if (t.dtype() == DType::f64) return f(double{});
  if (t.dtype() == DType::f32) return f(float{});
  throw UserError(str("[", op, "] values ", describe(t), ": f32 or f64 expected"));
}

// UserErrors `[op] a (2, 3) f32 and b (2, 3) f64: types differ`.
void check_same_type(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b);
// Checks that ids are i32 and within [0, n). The message names the first wrong one.
void check_ids(const char* op, const char* what, const Tensor& ids, int64_t n, const char* table, const Shape& shape);

// x *= factor. Does not access x if the factor is 1.
void scale_in_place(Context& ctx, Tensor& x, double factor);
// sums (cols) = beta * sums + the column sums of x (rows, cols), beta being 0 or 1. The order of the additions is
// fixed. On a GPU, x may have the type of operands.
void column_sums(Context& ctx, const Tensor& x, Tensor& sums, float beta);
// Rows of `table` (V, D) at the given ids, which are in the memory of ctx.device: (n, D).
Tensor gather_rows(Context& ctx, const Tensor& table, const int32_t* ids, int64_t n);
// The value in the type of matrix products. A rounded copy is stored with the variable until its value changes.
Tensor compute_copy(Context& ctx, const Var& v);
// The target for the kernel that computes v's value, of which compute_copy() then returns the rounded copy. None if
// kernels write no operands, or if products read the value itself.
OperandTarget target_of_copy(Context& ctx, const Var& v);
// The rounded copy that compute_copy() has stored with v; undefined if there is none.
Tensor stored_copy(const Context& ctx, const Var& v);
// After v.changed(), by the writer of v that has written `copy` with it: compute_copy() returns `copy`.
void keep_copy(const Context& ctx, const Var& v, const Tensor& copy);
// The memory of a rounded copy of t that its kernel writes; undefined in the same cases.
Tensor operand_beside(Context& ctx, const Tensor& t);

// A tensor of shape (1) with the given type.
Tensor scalar(Context& ctx, double value, DType type);

// Loops of the CPU.
// The sum of x (n) in double.
double sum_of(const float* x, int64_t n);
double sum_of(const double* x, int64_t n);

inline constexpr int64_t kGrain = 1 << 14;  // elements per thread of a pointwise loop, at least
inline int64_t row_grain(int64_t cols) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(cols, 1));
}

}  // namespace lmx::ops
