// Products of f32 on a CUDA device against doubles, in each of the modes of F32Products.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "backend/counting/device.h"
#include "backend/gemm_kernel.h"
#include "device.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"
#include "lmx/parameters.h"

namespace lmx {
namespace {

struct ProductMode {
  F32Products products;
  double least, most;  // limits of the largest error of any element in these tests
};
// The error is that of a number relative to the sum of the absolute values of its terms. TF32 rounds two factors by up
// to 2^-11. Two parts in bf16 lack up to 2^-16 of a factor, and the product of the smaller parts is up to 2^-16.
constexpr ProductMode kProductModes[] = {
    {F32Products::exact, 0, 1e-6}, {F32Products::bf16x3, 2e-6, 3e-5}, {F32Products::tf32, 2e-4, 2e-3}};

struct ProductSize {
  int64_t m, n, k;
};
// With inner sizes and leading dimensions that are multiples of a quad, and others. Few terms show the largest errors.
constexpr ProductSize kProductSizes[] = {{37, 64, 52}, {16, 24, 4}, {8, 12, 2}, {5, 9, 1}, {20, 7, 33}};

Tensor uniform(const Context& ctx, Shape shape, uint64_t seed) {
  Tensor t = Tensor::empty(ctx.host, shape, DType::f32);
  initialise(t, {"uniform", 1.0}, RandomKey(seed));
  return t;
}

// Element (i, j) of op(t).
double element_of(const Tensor& t, bool transposed, int64_t i, int64_t j) {
  return static_cast<double>(t.data<float>()[transposed ? j * t.dim(1) + i : i * t.dim(1) + j]);
}

class CudaProducts : public lmx_test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) ctx_ = lmx_test::context_on(Device::Kind::cuda);
  }
  std::vector<float> host(const Tensor& t) const {
    const auto read = ctx_.read<float>(t);
    return {read.get().begin(), read.get().end()};
  }
  Context ctx_;
};

// A product of random matrices, with the largest error of its result.
class RandomProduct {
 public:
  RandomProduct(Context& ctx, const ProductSize& s, bool ta, bool tb)
      : ctx_(ctx),
        size_(s),
        ta_(ta),
        tb_(tb),
        a_(uniform(ctx, ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1)),
        b_(uniform(ctx, tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2)),
        added_(uniform(ctx, {s.m, s.n}, 3)),
        bias_(uniform(ctx, {s.n}, 4)) {}

  double error_of_gemm(float beta) const {
    Tensor c = ctx_.upload(added_).clone();
    gemm(ctx_, ctx_.upload(a_), ta_, ctx_.upload(b_), tb_, c, beta);
    return error(c, [&](int64_t i, int64_t j) { return static_cast<double>(beta) * element_of(added_, false, i, j); });
  }
  double error_with_bias() const {
    Tensor c = ctx_.empty({size_.m, size_.n});
    EXPECT_TRUE(gemm_with_bias(ctx_, ctx_.upload(a_), ctx_.upload(b_), ctx_.upload(bias_), c));
    return error(c, [&](int64_t, int64_t j) { return static_cast<double>(bias_.data<float>()[j]); });
  }
  double error_of_packed(float beta) const {
    const PackedMatrix packed(ctx_, ctx_.upload(b_), tb_, size_.m);
    Tensor c = ctx_.upload(added_).clone();
    packed.multiply(ctx_, ctx_.upload(a_), c, beta);
    return error(c, [&](int64_t i, int64_t j) { return static_cast<double>(beta) * element_of(added_, false, i, j); });
  }

 private:
  template <class Added>
  double error(const Tensor& c, const Added& added) const {
    const auto read = ctx_.read<float>(c);
    double most = 0;
    for (int64_t i = 0; i < size_.m; ++i) {
      for (int64_t j = 0; j < size_.n; ++j) {
        double sum = added(i, j), size = std::abs(sum);
        for (int64_t l = 0; l < size_.k; ++l) {
          const double term = element_of(a_, ta_, i, l) * element_of(b_, tb_, l, j);
          sum += term;
          size += std::abs(term);
        }
        most = std::max(most,
                        std::abs(static_cast<double>(read.get()[static_cast<size_t>(i * size_.n + j)]) - sum) / size);
      }
    }
    return most;
  }

  Context& ctx_;
  ProductSize size_;
  bool ta_, tb_;
  Tensor a_, b_, added_, bias_;
};

TEST_F(CudaProducts, HaveTheErrorOfTheirMode) {
  for (const ProductMode& mode : kProductModes) {
    SCOPED_TRACE(static_cast<int>(mode.products));
    ctx_.products = mode.products;
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        std::array<double, 5> most{};
        for (const ProductSize& size : kProductSizes) {
          const RandomProduct product(ctx_, size, ta, tb);
          const double errors[] = {
              product.error_of_gemm(0), product.error_of_gemm(1), !ta && tb ? product.error_with_bias() : mode.least,
              ta ? mode.least : product.error_of_packed(0), ta ? mode.least : product.error_of_packed(1)};
          for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], errors[i]);
        }
        for (size_t i = 0; i < most.size(); ++i) {
          EXPECT_GE(most[i], mode.least) << "check " << i << ", transposed " << ta << tb;
          EXPECT_LT(most[i], mode.most) << "check " << i << ", transposed " << ta << tb;
        }
        RecordProperty(str("error_", static_cast<int>(mode.products), ta, tb), str(most[0]));
      }
    }
  }
}

// Tensors of a higher rank are folded, and products of other types have one mode.
TEST_F(CudaProducts, FoldLeadingSizesAndLeaveOtherTypesAlone) {
  const Tensor a = uniform(ctx_, {6, 8}, 1), b = uniform(ctx_, {8, 8}, 2);
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor x = ctx_.upload(a.to(type)), w = ctx_.upload(b.to(type));
    const DType out = type == DType::f64 ? type : DType::f32;
    Tensor exact = ctx_.empty({6, 8}, out);
    ctx_.products = F32Products::exact;
    gemm(ctx_, x, false, w, false, exact);
    for (const F32Products products : {F32Products::tf32, F32Products::bf16x3}) {
      ctx_.products = products;
      Tensor flat = ctx_.empty({6, 8}, out), folded = ctx_.empty({2, 3, 8}, out);
      gemm(ctx_, x, false, w, false, flat);
      gemm(ctx_, x.reshape({2, 3, 8}), false, w, false, folded);
      const auto bits = [&](const Tensor& t) { return lmx_test::values_of(ctx_, t); };
      EXPECT_EQ(bits(folded), bits(flat)) << name_of(type);
      if (type == DType::f32)
        EXPECT_NE(bits(flat), bits(exact));
      else
        EXPECT_EQ(bits(flat), bits(exact)) << name_of(type);
    }
  }
}

// The bits of a packed product are those of gemm(), also in a loop that becomes a graph. Loops that differ in their
// mode alone are different graphs.
TEST_F(CudaProducts, OfALoopFollowTheMode) {
  const Tensor x = ctx_.upload(uniform(ctx_, {9, 24}, 1)), w = ctx_.upload(uniform(ctx_, {40, 24}, 2));
  Tensor y = ctx_.empty({9, 40});
  std::vector<std::vector<float>> all;
  for (int round = 0; round < 3; ++round) {
    for (const ProductMode& mode : kProductModes) {
      ctx_.products = mode.products;
      Tensor want = ctx_.zeros({9, 40});
      for (int step = 0; step < 12; ++step) gemm(ctx_, x, false, w, true, want, 1.0f);
      const PackedMatrix packed(ctx_, w, true, 9);
      const Tensor memory = packed.operand_memory(ctx_, 9);
      EXPECT_EQ(memory.defined(), mode.products == F32Products::bf16x3);
      y.zero();
      replay_steps(ctx_, [&](Context& loop) {
        for (int step = 0; step < 12; ++step) packed.multiply(loop, x, y, 1.0f, memory);
      });
      EXPECT_EQ(host(y), host(want)) << "round " << round << ", mode " << static_cast<int>(mode.products);
      all.push_back(host(y));
    }
  }
  EXPECT_NE(all[0], all[1]);
  EXPECT_NE(all[0], all[2]);
  EXPECT_NE(all[1], all[2]);
}

// A copy of a weight serves one mode, whatever the number of rows.
TEST_F(CudaProducts, PackedMatricesOfAModeAreSeparate) {
  const Tensor w = ctx_.upload(uniform(ctx_, {40, 24}, 2));
  const std::string exact = PackedMatrix::layout(ctx_, w, true, 9);
  ctx_.products = F32Products::bf16x3;
  const std::string parts = PackedMatrix::layout(ctx_, w, true, 9);
  EXPECT_NE(parts, exact);
  EXPECT_EQ(PackedMatrix::layout(ctx_, w, true, 10), parts);
  EXPECT_EQ(PackedMatrix(ctx_, w, true, 9).bytes(), 3 * 2 * w.numel());
  const Tensor x = ctx_.upload(uniform(ctx_, {10, 24}, 1));
  Tensor y = ctx_.empty({10, 40}), want = ctx_.empty({10, 40});
  PackedMatrix(ctx_, w, true, 9).multiply(ctx_, x, y);
  gemm(ctx_, x, false, w, true, want);
  EXPECT_EQ(host(y), host(want));
}

TEST(CpuProducts, AreExactInEachMode) {
  Context ctx;
  const Tensor a = uniform(ctx, {6, 8}, 1), b = uniform(ctx, {8, 5}, 2);
  Tensor want = ctx.empty({6, 5});
  gemm(ctx, a, false, b, false, want);
  for (const F32Products products : {F32Products::tf32, F32Products::bf16x3}) {
    ctx.products = products;
    Tensor got = ctx.empty({6, 5});
    gemm(ctx, a, false, b, false, got);
    EXPECT_EQ(lmx_test::values_of(ctx, got), lmx_test::values_of(ctx, want));
  }
}

// The arithmetic of a step is that of its products, in whatever parts they are computed.
TEST(CountedProducts, AreThoseOfTheOperands) {
  for (const F32Products products : {F32Products::exact, F32Products::bf16x3}) {
    const auto device = CountingDevice::make(Device::Kind::cuda);
    Context ctx;
    device->place(ctx);
    ctx.products = products;
    Recording recording(*device);
    recording.record().begin_pass(1);
    const Tensor x = ctx.empty({9, 24}), w = ctx.empty({40, 24});
    Tensor y = ctx.empty({9, 40});
    gemm(ctx, x, false, w, true, y);
    PackedMatrix(ctx, w, true, 9).multiply(ctx, x, y);
    recording.record().end_pass();
    EXPECT_EQ(macs_of(recording.record().last().forward), 2 * 9 * 24 * 40);
    EXPECT_EQ(device->counts().launches["split"], products == F32Products::bf16x3 ? 4 : 0);
  }
}

}  // namespace
}  // namespace lmx
