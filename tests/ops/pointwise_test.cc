// Values of the pointwise ops in f32, dropout's mask, and results that do not depend on the number of threads.
#include <gtest/gtest.h>

#include <cmath>

#include "lmx/parallel.h"
#include "ops/gradcheck.h"

namespace lmx::testing {
namespace {

Tensor f32_tensor(Shape s, uint64_t seed, double scale = 1) {
  return f64_tensor(s, seed, scale).to(DType::f32);
}
std::vector<float> values(const Var& v) {
  return {v.value().values<float>().begin(), v.value().values<float>().end()};
}

TEST(Pointwise, ValuesInF32) {
  Context ctx;
  const Tensor x = f32_tensor({3, 1001}, 1, 4);
  const float* px = x.data<float>();
  const auto t = values(tanh(ctx, Var(x))), s = values(sigmoid(ctx, Var(x))), r = values(relu(ctx, Var(x)));
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_NEAR(t[at], std::tanh(px[i]), 3e-7);
    ASSERT_NEAR(s[at], 1 / (1 + std::exp(-px[i])), 3e-7);
    ASSERT_EQ(r[at], std::max(px[i], 0.0f));
  }
}

TEST(Pointwise, ReluPassesNan) {
  Context ctx;
  const Tensor x = Tensor::from<float>(Allocator::cpu(), {1}, std::vector<float>{NAN});
  EXPECT_TRUE(std::isnan(values(relu(ctx, Var(x)))[0]));
}

TEST(Pointwise, SumIsExactInDoubleInside) {
  Context ctx;
  Tensor x = Tensor::empty(Allocator::cpu(), {100'003}, DType::f32);
  for (float& v : x.values<float>()) v = 0.1f;
  EXPECT_FLOAT_EQ(values(sum(ctx, Var(x)))[0], 100'003 * 0.1f);
}

TEST(Pointwise, NothingIsRecordedWithoutATape) {
  Context ctx;
  const Var x(f32_tensor({4}, 1), true, "x");
  EXPECT_FALSE(tanh(ctx, x).requires_grad());
}

TEST(LayerNorm, RowsHaveMeanBiasAndDeviationGain) {
  Context ctx;
  const Tensor x = f32_tensor({4, 257}, 1, 30);
  Tensor gain = Tensor::empty(Allocator::cpu(), {257}, DType::f32), bias = gain.clone();
  for (float& v : gain.values<float>()) v = 2;
  for (float& v : bias.values<float>()) v = -1;
  const auto y = values(layer_norm(ctx, Var(x), Var(gain), Var(bias)));
  for (size_t r = 0; r < 4; ++r) {
    double mean = 0, squares = 0;
    for (size_t i = 0; i < 257; ++i) mean += static_cast<double>(y[r * 257 + i]) / 257;
    for (size_t i = 0; i < 257; ++i) squares += std::pow(static_cast<double>(y[r * 257 + i]) - mean, 2) / 257;
    EXPECT_NEAR(mean, -1, 1e-5);
    EXPECT_NEAR(std::sqrt(squares), 2, 1e-4);
  }
}

// Element 64 w + l of group g takes word w of Philox block 64 g + l in domain 4: the layout that the header of the op
// states.
TEST(Dropout, MaskIsPhilox) {
  Context ctx;
  const RandomKey key(0x123456789ABCDEFu);
  const int64_t n = 3000;
  Tensor ones = Tensor::empty(Allocator::cpu(), {n}, DType::f32);
  for (float& v : ones.values<float>()) v = 1;
  const auto y = values(dropout(ctx, Var(ones), 0.25, key));
  for (int64_t i = 0; i < n; ++i) {
    const auto group = static_cast<uint32_t>(i / 256), word = static_cast<uint32_t>(i % 256 / 64),
               lane = static_cast<uint32_t>(i % 64);
    const auto block = philox({64 * group + lane, 0, 4, 0},
                              {static_cast<uint32_t>(key.value()), static_cast<uint32_t>(key.value() >> 32)});
    ASSERT_EQ(y[static_cast<size_t>(i)], block[word] < 0x40000000u ? 0.0f : static_cast<float>(1 / 0.75)) << i;
  }
}

TEST(Dropout, KeepsTheExpectedFractionAndScale) {
  Context ctx;
  Tensor ones = Tensor::empty(Allocator::cpu(), {200'000}, DType::f32);
  for (float& v : ones.values<float>()) v = 1;
  for (const double p : {0.1, 0.5, 0.9}) {
    const auto y = values(dropout(ctx, Var(ones), p, RandomKey(11)));
    int64_t kept = 0;
    for (const float v : y) {
      ASSERT_TRUE(v == 0 || v == static_cast<float>(1 / (1 - p)));
      kept += v != 0;
    }
    EXPECT_NEAR(static_cast<double>(kept) / 200'000, 1 - p, 0.005);
  }
  EXPECT_NE(values(dropout(ctx, Var(ones), 0.5, RandomKey(1))), values(dropout(ctx, Var(ones), 0.5, RandomKey(2))));
}

TEST(Dropout, IdentityWhereItIsOff) {
  Context ctx;
  const Var x(f32_tensor({5}, 1), true, "x");
  EXPECT_TRUE(dropout(ctx, x, 0, RandomKey(1)).same(x));
  ctx.training = false;
  EXPECT_TRUE(dropout(ctx, x, 0.5, RandomKey(1)).same(x));
}

struct Results {
  std::vector<float> loss;
  std::vector<double> x, w, gain;
  bool operator==(const Results&) const = default;
};

Results everything(int threads) {
  set_num_threads(threads);
  Tape tape;
  Context ctx;
  ctx.tape = &tape;
  const Var x(f32_tensor({300, 200}, 1), true, "x"), w(f32_tensor({500, 200}, 2, 0.1), true, "w");
  const Var gain(f32_tensor({200}, 3), true, "gain"), bias(f32_tensor({200}, 4), true, "bias");
  Candidates c{{1, 2, 3, 4, 250, 250, 499}, {}, {}, false, true};
  std::vector<int32_t> targets;
  for (int32_t i = 0; i < 300; ++i) targets.push_back((i * 7) % 500);
  const Var y = dropout(ctx, layer_norm(ctx, tanh(ctx, x), gain, bias), 0.3, RandomKey(1));
  const Var loss = add(ctx, sampled_softmax_loss(ctx, y, w, Var(), ids_tensor(targets), c, Tensor()), sum(ctx, y));
  tape.backward(ctx, loss);
  return {values(loss), dense_gradient(x), dense_gradient(w), dense_gradient(gain)};
}

TEST(Pointwise, ThreadsDoNotChangeABit) {
  const int before = num_threads();
  const Results one = everything(1), three = everything(3);
  set_num_threads(before);
  EXPECT_TRUE(one == three);
}

}  // namespace
}  // namespace lmx::testing
