#include "autograd/gradient_sums.h"

#include <utility>

namespace lmx {
namespace {

template <class T>
void add_typed(Context& ctx, Tensor& table, RowSparse piece) {
  const auto n = static_cast<int64_t>(piece.indices.size());
  if (n == 0) return;
  const Uploaded<int32_t> ids = ctx.upload(std::move(piece.indices));
  const Tensor& rows = piece.rows;
  run_kernel(ctx, AddRows<T>{rows.data<T>(), ids.data(), table.data<T>(), n, rows.numel() / n});
}

}  // namespace

void fill(Context& ctx, Tensor& x, double value) {
  if (x.dtype() == DType::f64) return run_kernel(ctx, Fill<double>{x.data<double>(), x.numel(), value});
  run_kernel(ctx, Fill<float>{x.data<float>(), x.numel(), static_cast<float>(value)});
}

void add_tensor(Context& ctx, Tensor& sum, const Tensor& x) {
  if (sum.dtype() == DType::f64)
    return run_kernel(ctx, AddTensor<double>{x.data<double>(), sum.data<double>(), sum.numel()});
  run_kernel(ctx, AddTensor<float>{x.data<float>(), sum.data<float>(), sum.numel()});
}

// On a device, threads that add to the same row would have to wait for each other, so equal rows are summed first.
void add_rows(Context& ctx, Tensor& table, RowSparse piece) {
  if (!piece.unique && ctx.device.kind != Device::Kind::cpu) piece = coalesce(ctx, {piece});
  if (table.dtype() == DType::f64) return add_typed<double>(ctx, table, std::move(piece));
  add_typed<float>(ctx, table, std::move(piece));
}

}  // namespace lmx
