#include "comm/rows.h"

#include <utility>

#include "backend/cuda.h"
#include "lmx/row_sync.h"

namespace lmx::comm {
namespace {

template <class T>
Tensor typed(Context& ctx, const Tensor& t, const Uploaded<int32_t>& at) {
  Shape shape = t.shape();
  shape[0] = at.size();
  Tensor out = ctx.empty(shape, dtype_of<T>, MemClass::communication);
  const int64_t width = row_width(shape);
  run_kernel(ctx, CopyRows<T>{{t.data<T>(), width, 0, at.data()}, {}, {out.data<T>(), width}, at.size(), width});
  return out;
}

}  // namespace

Rows::Rows(Tensor t, Uploaded<int32_t> places)
    : tensor(std::move(t)), at(std::move(places)), width(row_width(tensor.shape())) {}

RowsAt<float> Rows::from(int64_t first, int64_t column) const {
  Tensor t = tensor;
  float* base = t.defined() ? t.data<float>() : nullptr;
  if (at.data()) return {base, width, column, at.data() + first, pages.data()};
  return {base ? base + first * width : nullptr, width, column};
}

Context context_of(const Tensor& t) {
  Context ctx;
  compute_on(ctx, t.device());
  ctx.allocator = t.allocator();
  return ctx;
}

Tensor joined(Context& ctx, DType type, std::span<const Tensor> parts) {
  int64_t total = 0, at = 0;
  for (const Tensor& part : parts) total += part.numel();
  Tensor all = ctx.empty({total}, type, MemClass::communication);
  for (const Tensor& part : parts) {
    all.slice(at, at + part.numel()).copy_from(part.reshape({-1}));
    at += part.numel();
  }
  return all;
}

Tensor gather_rows(Context& ctx, const Tensor& t, const Uploaded<int32_t>& at) {
  return t.dtype() == DType::f64 ? typed<double>(ctx, t, at) : typed<float>(ctx, t, at);
}

}  // namespace lmx::comm
