// Products of few rows by weights that bf16 holds: the bits of the same weights in f32, half the memory, and a new copy
// after a change.
#include <vector>

#include "backend/panel_gemm.h"
#include "lmx/decoding.h"
#include "lmx/matmul.h"
#include "ops/device_values.h"

namespace lmx::testing {
namespace {

Tensor in_bf16(const Shape& shape, uint64_t seed) {
  return f64_tensor(shape, seed).to(DType::f32).to(DType::bf16).to(DType::f32);
}

// Panels of 24 columns, tiles of 4 rows, pieces of 256 deep: sizes on both sides of each edge.
TEST(NarrowWeight, PanelsInBf16HaveTheProductsOfPanelsInF32) {
  for (const int64_t m : {1, 2, 3, 4, 5, 67}) {
    for (const int64_t n : {1, 24, 49}) {
      for (const int64_t k : {1, 256, 300}) {
        for (const bool trans : {false, true}) {
          const Tensor w = in_bf16({n, k}, 3), x = f64_tensor({m, k}, 4).to(DType::f32);
          std::vector<bfloat16> narrow(static_cast<size_t>(panel_elements(k, n)));
          std::vector<float> wide(narrow.size()), y(static_cast<size_t>(m * n), 2), z = y;
          pack_panels(w.data<float>(), trans, k, n, narrow.data());
          pack_panels(w.data<float>(), trans, k, n, wide.data());
          multiply_panels(x.data<float>(), narrow.data(), y.data(), m, n, k, 1);
          multiply_panels(x.data<float>(), wide.data(), z.data(), m, n, k, 1);
          ASSERT_EQ(y, z) << m << ' ' << n << ' ' << k << ' ' << trans;
        }
      }
    }
  }
}

// x w^T + b of inputs that are rounded to `compute`.
std::vector<double> reference(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& b) {
  const Tensor rx = to_compute(ctx, x).to(DType::f64), rw = to_compute(ctx, w).to(DType::f64);
  std::vector<double> y;
  for (int64_t i = 0; i < x.dim(0); ++i) {
    for (int64_t j = 0; j < w.dim(0); ++j) {
      double sum = b.data<float>()[j];
      for (int64_t k = 0; k < x.dim(1); ++k)
        sum += rx.data<double>()[i * x.dim(1) + k] * rw.data<double>()[j * x.dim(1) + k];
      y.push_back(sum);
    }
  }
  return y;
}

TEST(NarrowWeight, ProductsAreThoseOfTheWeights) {
  for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool held : {false, true}) {
      Context ctx;
      ctx.compute = compute;
      Var w(held ? in_bf16({50, 300}, 3) : f64_tensor({50, 300}, 3).to(DType::f32));
      const Var b(f64_tensor({50}, 5).to(DType::f32));
      for (const float factor : {1.0F, -2.0F}) {
        for (int64_t i = 0; i < w.value().numel(); ++i) w.value().data<float>()[i] *= factor;
        w.changed();
        for (const int64_t rows : {1, 4, 5}) {
          SCOPED_TRACE(str(name_of(compute), held ? " held by bf16" : "", ", ", rows, " rows, times ", factor));
          const Tensor x = f64_tensor({rows, 300}, 4).to(DType::f32);
          const Tensor y = linear_packed(ctx, Var(x), w, b).value().to(DType::f64);
          const std::vector<double> got(y.data<double>(), y.data<double>() + y.numel());
          lmx_test::expect_close(got, reference(ctx, x, w.value(), b.value()), compute == DType::bf16 ? 1e-4 : 1e-5);
        }
      }
    }
  }
}

// On CPUs that multiply bf16 in hardware, oneDNN packs the weights of products in bf16, and pads their edges.
TEST(NarrowWeight, TakesTwoBytesANumber) {
  const auto packed_bytes = [](DType compute, bool held) {
    Context ctx;
    ctx.compute = compute;
    ctx.allocator = Allocator::counting(Allocator::cpu());
    Tensor value = ctx.empty({48, 512}, DType::f32, MemClass::parameters);
    value.copy_from(held ? in_bf16({48, 512}, 3) : f64_tensor({48, 512}, 3).to(DType::f32));
    const auto parameters = [&] { return ctx.allocator->stats().current[static_cast<size_t>(MemClass::parameters)]; };
    const int64_t before = parameters();
    const Var w(value);
    linear_packed(ctx, Var(f64_tensor({1, 512}, 4).to(DType::f32)), w, Var());
    return parameters() - before;
  };
  EXPECT_EQ(packed_bytes(DType::f32, true), 2 * 48 * 512);
  if (multiplies_in_f32(DType::bf16)) {
    EXPECT_EQ(packed_bytes(DType::bf16, false), 2 * 48 * 512);
  }
  EXPECT_GE(packed_bytes(DType::f32, false), 4 * 48 * 512);
}

}  // namespace
}  // namespace lmx::testing
