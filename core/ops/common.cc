#include "ops/common.h"

#include <cstring>

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD void scale_kernel(T* x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <class T>
LMX_SIMD void add_kernel_row(T* __restrict sum, const T* __restrict row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += row[i];
}

}  // namespace

void check_same_type(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  throw UserError(str("[", op, "] ", name_a, ' ', describe(a), " and ", name_b, ' ', describe(b), ": types differ"));
}

void check_ids(const char* op, const char* what, const Tensor& ids, int64_t n, const char* table, const Shape& shape) {
  if (ids.dtype() != DType::i32) throw UserError(str("[", op, "] ", what, ' ', describe(ids), ": i32 expected"));
  const int32_t* id = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] >= 0 && id[i] < n) continue;
    throw UserError(
        str("[", op, "] ", what, '[', i, "] = ", id[i], " for ", table, ' ', shape, ": must be in [0, ", n, ")"));
  }
}

void scale_in_place(Tensor& x, double factor) {
  if (factor == 1.0) return;
  with_values("scale", x, [&](auto zero) {
    using T = decltype(zero);
    T* data = x.data<T>();
    parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      scale_kernel<T>(data + begin, static_cast<T>(factor), end - begin);
    });
  });
}

void column_sums(const Tensor& x, Tensor& sums, float beta) {
  const int64_t cols = sums.numel(), rows = cols ? x.numel() / cols : 0;
  if (beta == 0) sums.zero();
  with_values("column_sums", x, [&](auto zero) {
    using T = decltype(zero);
    const T* data = x.data<T>();
    T* sum = sums.data<T>();
    // Threads share columns, not rows, so that the order of additions does not depend on their number.
    parallel_for(cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(rows, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rows; ++r) add_kernel_row<T>(sum + begin, data + r * cols + begin, end - begin);
    });
  });
}

Tensor gather_rows(Context& ctx, const Tensor& table, const int32_t* ids, int64_t n) {
  const int64_t width = table.dim(0) ? table.numel() / table.dim(0) : 0;
  const auto row_bytes = static_cast<size_t>(width) * size_of(table.dtype());
  Tensor out = ctx.empty({n, width}, table.dtype());
  const auto* from = static_cast<const std::byte*>(table.raw());
  auto* to = static_cast<std::byte*>(out.raw());
  parallel_for(n, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(to + static_cast<size_t>(i) * row_bytes, from + static_cast<size_t>(ids[i]) * row_bytes, row_bytes);
    }
  });
  return out;
}

Tensor compute_copy(Context& ctx, const Var& w) {
  const Tensor& value = w.value();
  if (value.dtype() == ctx.compute || value.dtype() == DType::f64) return value;
  return w.cached<Tensor>(str("rounded.", name_of(ctx.compute)), [&] { return to_compute(ctx, value); });
}

}  // namespace lmx::ops
