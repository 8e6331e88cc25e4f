#include "ops/common.h"

#include "autograd/gradient_sums.h"

namespace lmx::ops {

void check_same_type(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  throw UserError(str("[", op, "] ", name_a, ' ', describe(a), " and ", name_b, ' ', describe(b), ": types differ"));
}

void check_ids(const char* op, const char* what, const Tensor& ids, int64_t n, const char* table, const Shape& shape) {
  if (ids.dtype() != DType::i32) throw UserError(str("[", op, "] ", what, ' ', describe(ids), ": i32 expected"));
  int64_t i = 0;
  for (const int32_t id : ids.values<int32_t>()) {
    if (id < 0 || id >= n)
      throw UserError(
          str("[", op, "] ", what, '[', i, "] = ", id, " for ", table, ' ', shape, ": must be in [0, ", n, ")"));
    ++i;
  }
}

void scale_in_place(Context& ctx, Tensor& x, double factor) {
  if (factor == 1.0) return;
  with_values("scale", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Scale<T>{x.data<T>(), x.numel(), static_cast<T>(factor)});
  });
}

void column_sums(Context& ctx, const Tensor& x, Tensor& sums, float beta) {
  const int64_t cols = sums.numel(), rows = cols ? x.numel() / cols : 0;
  with_values("column_sums", sums, [&](auto zero) {
    using T = decltype(zero);
    with_kept<T>(x.dtype(), [&](auto type) {
      using S = decltype(type);
      run_kernel(ctx, ColumnSums<T, S>{x.data<S>(), sums.data<T>(), rows, cols, static_cast<T>(beta)});
    });
  });
}

Tensor gather_rows(Context& ctx, const Tensor& table, const int32_t* ids, int64_t n) {
  const int64_t width = table.dim(0) ? table.numel() / table.dim(0) : 0;
  Tensor rows = ctx.empty({n, width}, table.dtype());
  with_values("gather_rows", table, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, GatherRows<T>{table.data<T>(), ids, rows.data<T>(), n, width});
  });
  return rows;
}

namespace {

// The key of a variable's rounded copy.
std::string copy_key(const Context& ctx) {
  return str("rounded.", name_of(ctx.compute));
}

}  // namespace

Tensor compute_copy(Context& ctx, const Var& v) {
  const Tensor& value = v.value();
  if (value.dtype() == ctx.compute || value.dtype() == DType::f64) return value;
  return v.cached<Tensor>(copy_key(ctx), [&] { return to_compute(ctx, value); });
}

Tensor stored_copy(const Context& ctx, const Var& v) {
  const Tensor* copy = v.stored<Tensor>(copy_key(ctx));
  return copy ? *copy : Tensor();
}

void keep_copy(const Context& ctx, const Var& v, const Tensor& copy) {
  v.cached<Tensor>(copy_key(ctx), [&] { return copy; });
}

Tensor operand_beside(Context& ctx, const Tensor& t) {
  return kernels_write_operands(ctx) ? operand_memory(ctx, t) : Tensor();
}

OperandTarget target_of_copy(Context& ctx, const Var& v) {
  const Tensor memory = operand_beside(ctx, v.value());
  if (!memory.defined()) return {};
  return operand_target(ctx, v.cached<Tensor>(copy_key(ctx), [&] { return memory; }));
}

Tensor scalar(Context& ctx, double value, DType type) {
  Tensor t = ctx.empty({1}, type);
  fill(ctx, t, value);
  return t;
}

}  // namespace lmx::ops
