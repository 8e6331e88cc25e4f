
#include <cmath>

#include "lmx/ops.h"
#include "ops/gradcheck.h"
#include "test.h"

namespace lmx::testing {
namespace {

TEST(WeightNorm, GradientsMatchDifferences) {
  const Shape sizes[] = {{3, 5}, {1, 1}, {1, 7}, {6, 1}, {4, 33}};
  for (const Shape& size : sizes) {
    const Tensor weights = f64_tensor(size, 9);
    gradcheck(
        [&](Context& ctx, const std::vector<Var>& v) {
          return sum(ctx, multiply(ctx, weight_norm(ctx, v[0], v[1]), Var(weights)));
        },
        {f64_leaf(size, 1, "v"), f64_leaf({size[0]}, 2, "g")});
  }
}

TEST(WeightNorm, RowsHaveTheLengthOfTheirGain) {
  Context ctx;
  const Var v(f64_tensor({4, 100}, 1, 3.0).to(DType::f32)), g(f64_tensor({4}, 2).to(DType::f32));
  const Tensor w = weight_norm(ctx, v, g).value();
  for (int64_t r = 0; r < 4; ++r) {
    double squares = 0;
    for (int64_t j = 0; j < 100; ++j) squares += std::pow(static_cast<double>(w.data<float>()[r * 100 + j]), 2);
    EXPECT_NEAR(std::sqrt(squares), std::abs(g.value().data<float>()[r]), 1e-6);
  }
}

// Squares of 1e-30 vanish in fp32, those of 1e30 overflow: norms are summed in double.
TEST(WeightNorm, NormsOfTinyAndHugeRows) {
  Context ctx;
  Tensor v = ctx.empty({2, 4});
  for (int64_t j = 0; j < 4; ++j) {
    v.data<float>()[j] = 1e-30f;
    v.data<float>()[4 + j] = -1e30f;
  }
  const Tensor w =
      weight_norm(ctx, Var(v), Var(Tensor::from<float>(ctx.allocator, {2}, std::vector<float>{2, 3}))).value();
  for (int64_t j = 0; j < 4; ++j) {
    EXPECT_FLOAT_EQ(w.data<float>()[j], 1);
    EXPECT_FLOAT_EQ(w.data<float>()[4 + j], -1.5f);
  }
}

// Mixed precision rounds what products read, not the norms: results and gradients are those of fp32, bit for bit.
TEST(WeightNorm, MixedPrecisionRoundsNothing) {
  const auto run = [](DType compute) {
    Context ctx;
    Tape tape;
    ctx.compute = compute;
    ctx.tape = &tape;
    const Var v(f64_tensor({5, 33}, 1, 0.3).to(DType::f32), true, "v"), g(f64_tensor({5}, 2).to(DType::f32), true, "g");
    const Var w = weight_norm(ctx, v, g);
    EXPECT_EQ(w.value().dtype(), DType::f32);
    tape.backward(ctx, sum(ctx, multiply(ctx, w, Var(f64_tensor({5, 33}, 3).to(DType::f32)))));
    std::vector<double> all;
    for (const float x : w.value().values<float>()) all.push_back(static_cast<double>(x));
    for (const Var* leaf : {&v, &g})
      for (const double d : dense_gradient(*leaf)) all.push_back(d);
    return all;
  };
  const std::vector<double> exact = run(DType::f32);
  EXPECT_EQ(run(DType::bf16), exact);
  EXPECT_EQ(run(DType::f16), exact);
}

// A row of zeros has no direction: it stays zero and gets no gradient, never NaN.
TEST(WeightNorm, ARowOfZeros) {
  Tape tape;
  Context ctx;
  ctx.tape = &tape;
  const Var v(ctx.zeros({1, 3}), true, "v"),
      g(Tensor::from<float>(ctx.allocator, {1}, std::vector<float>{2}), true, "g");
  const Var w = weight_norm(ctx, v, g);
  tape.backward(ctx, sum(ctx, w));
  for (const double d : dense_gradient(v)) EXPECT_EQ(d, 0);
  EXPECT_EQ(dense_gradient(g)[0], 0);
  for (const float x : w.value().values<float>()) EXPECT_EQ(x, 0);
}

TEST(WeightNorm, ErrorsNameEveryShape) {
  Context ctx;
  const auto message = [&](Shape v, Shape g) {
    return lmx_test::user_error([&] { weight_norm(ctx, Var(ctx.zeros(v)), Var(ctx.zeros(g))); });
  };
  EXPECT_EQ(message({2, 3}, {3}), "[weight_norm] v (2, 3), g (3): v must be a matrix (N, K), g (N)");
  EXPECT_EQ(message({6}, {6}), "[weight_norm] v (6), g (6): v must be a matrix (N, K), g (N)");
}

}  // namespace
}  // namespace lmx::testing
