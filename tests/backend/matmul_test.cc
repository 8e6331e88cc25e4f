#include "lmx/matmul.h"

#include <cstring>

#include "backend/gemm_kernel.h"
#include "backend/onednn.h"
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/parallel.h"
#include "lmx/parameters.h"
#include "test.h"

namespace lmx {
namespace {

using lmx_test::run_error;
using lmx_test::user_error;

Tensor random(Context& ctx, Shape shape, uint64_t seed, DType type = DType::f32) {
  Tensor t = ctx.empty(shape);
  initialise(t, {"uniform", 1.0}, RandomKey(seed));
  return t.to(type);
}

// The product in doubles, from what the inputs hold after rounding to their type.
std::vector<double> reference(const Tensor& a, bool ta, const Tensor& b, bool tb) {
  const Tensor x = a.to(DType::f64), y = b.to(DType::f64);
  const int64_t m = ta ? a.dim(1) : a.dim(0), k = ta ? a.dim(0) : a.dim(1), n = tb ? b.dim(0) : b.dim(1);
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t p = 0; p < k; ++p) {
        c[static_cast<size_t>(i * n + j)] +=
            x.data<double>()[ta ? p * m + i : i * k + p] * y.data<double>()[tb ? j * k + p : p * n + j];
      }
    }
  }
  return c;
}

void expect_near(const Tensor& c, const std::vector<double>& want, double tolerance) {
  const Tensor got = c.to(DType::f64);
  ASSERT_EQ(got.numel(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.data<double>()[i], want[i], tolerance) << i;
}

struct Case {
  int64_t m, n, k;
};

class Gemm : public testing::TestWithParam<std::tuple<Case, DType, bool, bool>> {};

TEST_P(Gemm, MatchesDoubles) {
  const auto [size, type, ta, tb] = GetParam();
  Context ctx;
  const Tensor a = random(ctx, ta ? Shape{size.k, size.m} : Shape{size.m, size.k}, 1, type);
  const Tensor b = random(ctx, tb ? Shape{size.n, size.k} : Shape{size.k, size.n}, 2, type);
  Tensor c = ctx.zeros({size.m, size.n}, type == DType::f64 ? DType::f64 : DType::f32);
  const std::vector<double> want = reference(a, ta, b, tb);
  const double tolerance = (type == DType::f64 ? 1e-13 : 1e-6) * static_cast<double>(size.k + 8);
  gemm(ctx, a, ta, b, tb, c);
  expect_near(c, want, tolerance);
  gemm(ctx, a, ta, b, tb, c, 1.0f);
  std::vector<double> twice = want;
  for (double& v : twice) v *= 2;
  expect_near(c, twice, 2 * tolerance);
  if (ta || !tb || type == DType::f64) return;
  const Tensor bias = random(ctx, {size.n}, 3);
  ASSERT_TRUE(gemm_with_bias(ctx, a, b, bias, c));
  std::vector<double> biased = want;
  for (size_t i = 0; i < biased.size(); ++i)
    biased[i] += static_cast<double>(bias.data<float>()[i % static_cast<size_t>(size.n)]);
  expect_near(c, biased, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Gemm,
                         testing::Combine(testing::Values(Case{1, 1, 1}, Case{3, 5, 7}, Case{32, 48, 20},
                                                          Case{1, 64, 33}, Case{65, 1, 17},
                                                          Case{640, 70, 33}),  // enough rows to pack the right side
                                          testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                                          testing::Bool(), testing::Bool()));

// Where products of a 16-bit type run in f32, as_operand() gives the rounded numbers as f32, and gemm() takes them
// beside operands of the type: the result is the same to the bit.
TEST(Matmul, OperandsInF32GiveTheSameBits) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Context ctx;
    ctx.compute = type;
    const Tensor a = random(ctx, {24, 40}, 1, DType::f32), b = random(ctx, {40, 36}, 2, DType::f32);
    const Tensor rounded = as_operand(ctx, a), kept = to_compute(ctx, a);
    ASSERT_EQ(rounded.dtype(), multiplies_in_f32(type) ? DType::f32 : type);
    const Tensor one = rounded.to(DType::f64), two = kept.to(DType::f64);
    EXPECT_EQ(std::memcmp(one.raw(), two.raw(), static_cast<size_t>(one.bytes())), 0) << name_of(type);
    Tensor want = ctx.empty({24, 36}), got = ctx.empty({24, 36});
    gemm(ctx, kept, false, to_compute(ctx, b), false, want);
    gemm(ctx, rounded, false, to_compute(ctx, b), false, got);
    EXPECT_EQ(std::memcmp(got.raw(), want.raw(), static_cast<size_t>(want.bytes())), 0) << name_of(type);
    gemm(ctx, kept, false, as_operand(ctx, b), false, got);
    EXPECT_EQ(std::memcmp(got.raw(), want.raw(), static_cast<size_t>(want.bytes())), 0) << name_of(type);
  }
  Context ctx;
  const Tensor t = random(ctx, {3, 5}, 1, DType::f32);
  EXPECT_EQ(as_operand(ctx, t).raw(), t.raw()) << "f32 is not copied";
}

// A product may be stored in the type of its operands: the sums are those of f32, rounded once.
TEST(Matmul, SumsAreRoundedToA16BitResult) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Context ctx;
    for (const int64_t rows : {24, 640}) {  // 640: with a packed right side
      const Tensor a = random(ctx, {rows, 40}, 1, type), b = random(ctx, {36, 40}, 2, type);
      Tensor sums = ctx.empty({rows, 36}), got = ctx.empty({rows, 36}, type);
      gemm(ctx, a, false, b, true, sums);
      gemm(ctx, a, false, b, true, got);
      const Tensor want = sums.to(type);
      EXPECT_EQ(std::memcmp(got.raw(), want.raw(), static_cast<size_t>(want.bytes())), 0) << name_of(type);
      if (multiplies_in_f32(type)) {
        EXPECT_THROW(gemm(ctx, a, false, b, true, got, 1.0f), InternalError);
      }
    }
  }
}

class Packed : public testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(Packed, EqualsGemm) {
  const auto [type, trans] = GetParam();
  Context ctx;
  ctx.compute = type;
  const Tensor w = random(ctx, trans ? Shape{96, 40} : Shape{40, 96}, 3, type == DType::f64 ? type : DType::f32);
  const Tensor x = random(ctx, {32, 40}, 4, type);
  const PackedMatrix packed(ctx, w, trans, 32);
  Tensor y = ctx.zeros({32, 96}, type == DType::f64 ? DType::f64 : DType::f32);
  packed.multiply(ctx, x, y, 1.0f);
  expect_near(y, reference(x, false, to_compute(ctx, w), trans), type == DType::f64 ? 1e-12 : 1e-4);
}
INSTANTIATE_TEST_SUITE_P(Types, Packed,
                         testing::Combine(testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                                          testing::Bool()));

// Panels of 24 columns, tiles of 4 rows, pieces of 256 deep, blocks of 64 rows: sizes on both sides of each edge.
TEST(PackedMatrix, EveryEdgeOfThePanels) {
  Context ctx;
  for (int64_t m : {1, 2, 3, 5, 64, 67}) {
    for (int64_t n : {1, 23, 24, 49}) {
      for (int64_t k : {1, 256, 300}) {
        const Tensor w = random(ctx, {n, k}, 3), x = random(ctx, {m, k}, 4);
        Tensor y = ctx.zeros({m, n});
        y.data<float>()[0] = 2;
        PackedMatrix(ctx, w, true, m).multiply(ctx, x, y, 1.0f);
        std::vector<double> want = reference(x, false, w, true);
        want[0] += 2;
        expect_near(y, want, 1e-4);
        PackedMatrix(ctx, transposed(ctx, w, DType::f32), false, m).multiply(ctx, x, y, 0.0f);
        want[0] -= 2;
        expect_near(y, want, 1e-4);
      }
    }
  }
}

// Where layout() says that two numbers of rows share a packed copy, they do: forwards and when accumulating.
TEST(PackedMatrix, EqualLayoutsShareACopy) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const bool trans : {false, true}) {
      Context ctx;
      ctx.compute = type;
      const DType value = type == DType::f64 ? type : DType::f32;
      const Tensor w = random(ctx, trans ? Shape{96, 40} : Shape{40, 96}, 3, value);
      const PackedMatrix packed(ctx, w, trans, 32);
      const std::string layout = PackedMatrix::layout(ctx, w, trans, 32);
      EXPECT_NE(layout, PackedMatrix::layout(ctx, w, !trans, 32));
      for (const int64_t rows : {1, 5, 8, 64, 333}) {
        if (PackedMatrix::layout(ctx, w, trans, rows) != layout) continue;
        const Tensor x = random(ctx, {rows, 40}, 4, type);
        Tensor y = ctx.empty({rows, 96}, value);
        std::vector<double> want = reference(x, false, to_compute(ctx, w), trans);
        packed.multiply(ctx, x, y);
        expect_near(y, want, type == DType::f64 ? 1e-12 : 1e-4);
        packed.multiply(ctx, x, y, 1.0f);
        for (double& v : want) v *= 2;
        expect_near(y, want, type == DType::f64 ? 1e-12 : 1e-4);
      }
    }
  }
}

// Panels, and w itself, suit any number of rows and threads; types stay apart.
TEST(PackedMatrix, OnlyBlockedLayoutsKnowRows) {
  Context ctx;
  const Tensor w = random(ctx, {96, 40}, 3);
  const std::string f32 = PackedMatrix::layout(ctx, w, true, 32);
  ctx.compute = DType::f16;
  const std::string f16 = PackedMatrix::layout(ctx, w, true, 32);
  EXPECT_NE(f16, f32);
  EXPECT_EQ(PackedMatrix::layout(ctx, w.to(DType::f64), true, 7), PackedMatrix::layout(ctx, w.to(DType::f64), true, 8));
  if (std::string(cpu_isa()) != "avx2") GTEST_SKIP() << "oneDNN packs here, whose layouts may know rows";
  const int threads = num_threads();
  set_num_threads(threads + 1);
  EXPECT_EQ(PackedMatrix::layout(ctx, w, true, 7), f16);
  set_num_threads(threads);
  ctx.compute = DType::f32;
  EXPECT_EQ(PackedMatrix::layout(ctx, w, true, 7), f32);
}

TEST(Matmul, ErrorsNameShapesAndReason) {
  Context ctx;
  const Tensor a = ctx.zeros({4, 5}), b = ctx.zeros({4, 7});
  Tensor c = ctx.zeros({4, 7});
  EXPECT_EQ(user_error([&] { gemm(ctx, a, false, b, false, c); }),
            "[matmul] a (4, 5) f32 x b (4, 7) f32: inner sizes 5 and 4 differ");
  EXPECT_EQ(user_error([&] { gemm(ctx, a, true, b, false, c); }),
            "[matmul] a (4, 5) f32 transposed x b (4, 7) f32: the product is (5, 7), the output (4, 7)");
  EXPECT_THROW(gemm(ctx, a, true, b.to(DType::bf16), false, c), UserError);
}

TEST(Matmul, FoldsLeadingDimensions) {
  Context ctx;
  const Tensor a = random(ctx, {2, 3, 4}, 1), b = random(ctx, {4, 5}, 2);
  Tensor c = ctx.zeros({2, 3, 5});
  gemm(ctx, a, false, b, false, c);
  expect_near(c, reference(a.reshape({6, 4}), false, b, false), 1e-5);
}

// A gradient that two layers add to may be stored in bf16 where the CPU multiplies it.
TEST(Matmul, AddsToAResultOfBf16) {
  if (multiplies_in_f32(DType::bf16)) GTEST_SKIP() << "this CPU does not multiply bf16";
  Context ctx;
  ctx.compute = DType::bf16;
  const Tensor a = random(ctx, {70, 33}, 1, DType::bf16), b = random(ctx, {33, 40}, 2, DType::bf16);
  Tensor c = ctx.empty({70, 40}, DType::bf16);
  gemm(ctx, a, false, b, false, c);
  gemm(ctx, a, false, b, false, c, 1.0f);
  std::vector<double> want = reference(a, false, b, false);
  for (double& v : want) v *= 2;
  expect_near(c.to(DType::f32), want, 2e-1);
}

TEST(Matmul, EmptyInnerSizeGivesZero) {
  Context ctx;
  Tensor c = ctx.empty({2, 2});
  c.data<float>()[0] = 5;
  gemm(ctx, ctx.zeros({2, 0}), false, ctx.zeros({0, 2}), false, c);
  EXPECT_EQ(c.data<float>()[0], 0);
}

TEST(Kernels, AMissingOneSaysWhich) {
  const Device cuda{Device::Kind::cuda, 0};
  EXPECT_EQ(user_error([&] { find_kernel<lmx::Gemm<int64_t>>(cuda); }),
            "[gemm] no CUDA kernel for i64 in this build (input on cuda:0)");
}

TEST(Parallel, SumOfSquaresDoesNotDependOnThreads) {
  std::vector<float> x(100'003);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(RandomKey(1).normal(i));
  const int before = num_threads();
  set_num_threads(1);
  const double one = sum_of_squares(x);
  set_num_threads(4);
  EXPECT_EQ(sum_of_squares(x), one);
  set_num_threads(before);
  EXPECT_EQ(sum_of_squares({}), 0);
}

// Some sizes have no whole tile of 8 x 8, and some no block of 32.
TEST(Transposed, EveryTypeAndSize) {
  Context ctx;
  for (DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{37, 70}, {64, 32}, {7, 40}, {41, 5}, {1, 9}}) {
      const Tensor t = random(ctx, {rows, cols}, 9, type);
      const Tensor got = transposed(ctx, t, type).to(DType::f64), want = t.to(DType::f64);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(got.data<double>()[c * rows + r], want.data<double>()[r * cols + c])
              << name_of(type) << " (" << rows << ", " << cols << "), row " << r << ", column " << c;
        }
      }
    }
  }
}

// What oneDNN throws comes out as lmx's own errors, with the shapes.

TEST(OneDnn, ErrorsAreRunErrorsThatNameTheOperation) {
  const auto what = [] { return std::string("multiply (2, 3) by (3, 4) f32"); };
  EXPECT_EQ(
      run_error([&] { with_onednn(what, [] { throw dnnl::error(dnnl_out_of_memory, "no room for a primitive"); }); }),
      "[gemm] oneDNN cannot multiply (2, 3) by (3, 4) f32 here: no room for a primitive");
  EXPECT_EQ(with_onednn(what, [] { return 7; }), 7);
  EXPECT_THROW(with_onednn(what, [] { throw UserError("another's"); }), UserError);
}

// A product that oneDNN refuses for real.
TEST(OneDnn, RefusedProductsNameTheirShapes) {
  const DnnlMatmul::Key key{-7, 5, 3, false, false, true, false, dnnl::memory::data_type::f32, 1};
  EXPECT_EQ(run_error([&] { dnnl_matmul(key); }).substr(0, 56),
            "[gemm] oneDNN cannot multiply (-7, 3) by (3, 5) f32 here");
}

}  // namespace
}  // namespace lmx
