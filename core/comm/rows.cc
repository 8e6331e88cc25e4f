#include "comm/rows.h"

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

Context context_of(const Tensor& t) {
  Context ctx;
  ctx.device = t.device();
  ctx.allocator = t.allocator();
  return ctx;
}

Tensor gather_rows(Context& ctx, const Tensor& t, const Uploaded<int32_t>& at) {
  return t.dtype() == DType::f64 ? typed<double>(ctx, t, at) : typed<float>(ctx, t, at);
}

}  // namespace lmx::comm
