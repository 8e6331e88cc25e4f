// What the ops share: checks with their messages, dispatch on the value type, and loops over whole tensors.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "lmx/autograd.h"
#include "lmx/context.h"
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"
#include "lmx/ops.h"
#include "lmx/parallel.h"

namespace lmx::ops {

// A tensor as rows of its last dimension: (B, T, D) is (B*T, D).
struct Matrix {
  int64_t rows, cols;
};
inline Matrix fold(const Shape& shape) {
  const int64_t cols = shape.rank() ? shape[shape.rank() - 1] : 1;
  int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return {rows, cols};
}

// `shape` with another last dimension.
inline Shape with_last(Shape shape, int64_t last) {
  shape[shape.rank() - 1] = last;
  return shape;
}

// Calls f(double{}) or f(float{}) by the tensor's type.
template <class F>
decltype(auto) with_values(const char* op, const Tensor& t, F&& f) {
  if (t.dtype() == DType::f64) return f(double{});
  if (t.dtype() == DType::f32) return f(float{});
  throw UserError(str("[", op, "] values ", describe(t), ": f32 or f64 expected"));
}

// UserErrors `[op] a (2, 3) f32 and b (2, 3) f64: types differ`.
void check_same_type(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b);
// Ids are i32 and within [0, n); the message names the first that is not.
void check_ids(const char* op, const char* what, const Tensor& ids, int64_t n, const char* table, const Shape& shape);

// x *= factor; nothing is read or written for factor 1.
void scale_in_place(Tensor& x, double factor);
// sums (cols) = beta * sums + the column sums of x (rows, cols), rows added in ascending order.
void column_sums(const Tensor& x, Tensor& sums, float beta);
// rows of `table` (V, D) at ids: (n, D).
Tensor gather_rows(Context& ctx, const Tensor& table, const int32_t* ids, int64_t n);
// w in the type of matrix products; the rounded copy is kept with the variable until its value changes.
Tensor compute_copy(Context& ctx, const Var& w);

// (1) of `like`'s type.
inline Tensor scalar(Context& ctx, double value, DType type) {
  Tensor t = ctx.empty({1}, type);
  if (type == DType::f64) {
    *t.data<double>() = value;
  } else {
    *t.data<float>() = static_cast<float>(value);
  }
  return t;
}
inline double scalar_value(const Tensor& t) {
  return t.dtype() == DType::f64 ? *t.data<double>() : static_cast<double>(*t.data<float>());
}

inline constexpr int64_t kGrain = 1 << 14;  // elements of a pointwise loop worth a thread of its own
inline int64_t row_grain(int64_t cols) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(cols, 1));
}

}  // namespace lmx::ops
