#include "ops/layers/narrow_weight.h"

#include <algorithm>

#include "backend/convert.h"
#include "backend/panel_gemm.h"
#include "lmx/error.h"
#include "lmx/matmul.h"

namespace lmx::ops {
namespace {

// In a product of more rows the conversion costs more than the bytes: 8 % of the time of 128 rows (Zen 3).
constexpr int64_t kMostRows = 4;

// Panels of w in bf16; undefined if it has other numbers.
struct NarrowWeight {
  Tensor panels;
};

// A model that was stored in bf16 has only such numbers. The weights of others differ in the first one.
bool is_in_bf16(const Tensor& w) {
  const float* values = w.data<float>();
  return std::all_of(values, values + w.numel(), [](float v) { return (float_bits(v) & 0xFFFFu) == 0; });
}

NarrowWeight narrow_copy(Context& ctx, const Tensor& w) {
  if (ctx.compute != DType::bf16 && !is_in_bf16(w)) return {};
  const int64_t n = w.dim(0), k = w.dim(1);
  Context owner = ctx;  // the copy counts in the memory of the rank that has the weight
  owner.allocator = w.allocator();
  NarrowWeight copy{owner.empty({panel_elements(k, n)}, DType::bf16, MemClass::parameters)};
  pack_panels(w.data<float>(), true, k, n, copy.panels.data<bfloat16>());  // rounds them
  return copy;
}

}  // namespace

bool multiply_narrow(Context& ctx, const Tensor& x, const Var& w, Tensor& y, float beta) {
  const Tensor& weight = w.value();
  const int64_t m = x.dim(0), n = weight.dim(0), k = weight.dim(1);
  if (m > kMostRows || ctx.device.kind != Device::Kind::cpu || ctx.device.counts || weight.dtype() != DType::f32 ||
      ctx.compute == DType::f16 || operand_type(ctx.compute) != DType::f32)
    return false;
  const auto& narrow =
      w.cached<NarrowWeight>(str("narrow ", name_of(ctx.compute)), [&] { return narrow_copy(ctx, weight); });
  if (!narrow.panels.defined()) return false;
  LMX_CHECK(x.dim(1) == k && y.shape() == Shape({m, n}) && y.dtype() == DType::f32, describe(x), " x ",
            describe(weight), " into ", describe(y));
  const Tensor operand = x.dtype() == DType::f32 ? as_operand(ctx, x) : widened(ctx, x.raw(), x.dtype(), x.numel());
  multiply_panels(operand.data<float>(), narrow.panels.data<bfloat16>(), y.data<float>(), m, n, k, beta);
  return true;
}

}  // namespace lmx::ops
