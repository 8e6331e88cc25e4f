// Values of the pointwise ops in f32, dropout's mask, and results that do not depend on the number of threads.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "lmx/math.h"
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

Tensor ones(Shape s) {
  Tensor t = Tensor::empty(Allocator::cpu(), s, DType::f32);
  for (float& v : t.values<float>()) v = 1;
  return t;
}

// Column 64 g + 16 w + l takes word w of Philox block 16 g + l of its row in domain 4: the layout that the header of
// the op states.
TEST(Dropout, MaskIsPhilox) {
  Context ctx;
  const RandomKey key(0x123456789ABCDEFu);
  const std::vector<uint64_t> ids{0, 7, 0xFEDCBA9876543210u};
  const int64_t n = 4096 + 3 * 64 + 5;  // chunks, groups together, single groups and the rest of one
  const auto whole = values(dropout(ctx, Var(ones({n})), 0.25, key));
  const auto rows = values(dropout(ctx, Var(ones({3, n})), 0.25, key, ids));
  for (int64_t i = 0; i < 4 * n; ++i) {
    const int64_t row = i / n - 1, j = i % n;  // row -1: the form without ids, one row of id 0
    const auto group = static_cast<uint32_t>(j / 64), word = static_cast<uint32_t>(j % 64 / 16),
               lane = static_cast<uint32_t>(j % 16);
    const uint64_t id = row < 0 ? 0 : ids[static_cast<size_t>(row)];
    const auto block = philox({16 * group + lane, static_cast<uint32_t>(id), 4, static_cast<uint32_t>(id >> 32)},
                              {static_cast<uint32_t>(key.value()), static_cast<uint32_t>(key.value() >> 32)});
    const float y = row < 0 ? whole[static_cast<size_t>(j)] : rows[static_cast<size_t>(row * n + j)];
    ASSERT_EQ(y, block[word] < 0x40000000u ? 0.0f : static_cast<float>(1 / 0.75)) << row << ' ' << j;
  }
}

// A row's mask does not know which rows stand beside it, nor how many columns follow.
TEST(Dropout, RowsAreDrawnByTheirIdsAlone) {
  Context ctx;
  const RandomKey key(3);
  const int64_t width = 300;
  const std::vector<uint64_t> ids{5, 90, 2, 1ull << 40, 90};
  const auto together = values(dropout(ctx, Var(ones({5, width})), 0.5, key, ids));
  const auto row = [&](size_t r) {
    return std::vector<float>(together.begin() + static_cast<int64_t>(r) * width,
                              together.begin() + static_cast<int64_t>(r + 1) * width);
  };
  EXPECT_EQ(row(1), row(4));
  for (size_t r = 0; r < 4; ++r) {
    for (size_t q = 0; q < r; ++q) EXPECT_NE(row(r), row(q));
    EXPECT_EQ(values(dropout(ctx, Var(ones({1, width})), 0.5, key, {ids[r]})), row(r));
    for (const int64_t narrow : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{257}}) {
      const auto part = values(dropout(ctx, Var(ones({1, narrow})), 0.5, key, {ids[r]}));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), row(r).begin())) << narrow;
    }
  }
}

TEST(Dropout, TheGradientTakesTheSameMask) {
  Context ctx;
  Tape tape;
  ctx.tape = &tape;
  const Var x(ones({4, 100}), true, "x");
  const Var y = dropout(ctx, x, 0.3, RandomKey(8), {4, 3, 2, 1});
  tape.backward(ctx, sum(ctx, y));
  const auto kept = values(y);
  EXPECT_EQ(dense_gradient(x), std::vector<double>(kept.begin(), kept.end()));
}

TEST(Dropout, KeepsTheExpectedFractionAndScale) {
  Context ctx;
  const Var x(ones({2000, 100}));
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 2000; ++i) ids.push_back(i);
  for (const double p : {0.1, 0.5, 0.9}) {
    for (const auto& y : {values(dropout(ctx, x, p, RandomKey(11))), values(dropout(ctx, x, p, RandomKey(11), ids))}) {
      int64_t kept = 0;
      for (const float v : y) {
        ASSERT_TRUE(v == 0 || v == static_cast<float>(1 / (1 - p)));
        kept += v != 0;
      }
      EXPECT_NEAR(static_cast<double>(kept) / 200'000, 1 - p, 0.005);
    }
  }
  EXPECT_NE(values(dropout(ctx, x, 0.5, RandomKey(1), ids)), values(dropout(ctx, x, 0.5, RandomKey(2), ids)));
}

TEST(Dropout, IdentityWhereItIsOff) {
  Context ctx;
  const Var x(f32_tensor({5}, 1), true, "x");
  EXPECT_TRUE(dropout(ctx, x, 0, RandomKey(1)).same(x));
  EXPECT_TRUE(dropout(ctx, x, 0, RandomKey(1), {9}).same(x));
  ctx.training = false;
  EXPECT_TRUE(dropout(ctx, x, 0.5, RandomKey(1)).same(x));
  EXPECT_TRUE(dropout(ctx, x, 0.5, RandomKey(1), {9}).same(x));
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
  std::vector<uint64_t> rows(300);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = 11 * i;
  const Var normed = dropout(ctx, layer_norm(ctx, tanh(ctx, x), gain, bias), 0.3, RandomKey(1));
  const Var y = dropout(ctx, normed, 0.2, RandomKey(2), rows);
  const Var loss = add(ctx, sampled_softmax_loss(ctx, {y, w, Var(), ids_tensor(targets)}, c), sum(ctx, y));
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

// lmx/math.h: float functions against the double standard library over the whole range, and at the edges.

namespace lmx {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Distance in units of the last place of the true value (of the smallest subnormal near zero).
double ulps(float got, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (got == rounded) return 0;
  if (!std::isfinite(got) || !std::isfinite(rounded)) return std::isnan(got) && std::isnan(rounded) ? 0 : 1e9;
  int e = 0;
  std::frexp(exact, &e);
  return std::abs(static_cast<double>(got) - exact) / std::ldexp(1.0, std::max(e - 24, -149));
}

template <class Fast, class Exact>
double worst(double from, double to, const Fast& fast, const Exact& exact) {
  double most = 0;
  constexpr int kPoints = 200'001;
  for (int i = 0; i < kPoints; ++i) {
    const auto x = static_cast<float>(from + (to - from) * i / (kPoints - 1));
    most = std::max(most, ulps(fast(x), exact(static_cast<double>(x))));
  }
  return most;
}

TEST(Math, ExpWithinTwoUlps) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LE(worst(-87.3, 88.8, fast_exp<float>, exact), 2.0);
  EXPECT_LE(worst(-1, 1, fast_exp<float>, exact), 2.0);
  EXPECT_LE(worst(-110, -87, fast_exp<float>, exact), 2.0);  // subnormal results and zero
}

TEST(Math, ExpAtTheEdges) {
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  EXPECT_EQ(fast_exp(-kInf), 0.0f);
  EXPECT_EQ(fast_exp(-1e30f), 0.0f);
  EXPECT_EQ(fast_exp(kInf), kInf);
  EXPECT_EQ(fast_exp(88.73f), kInf);
  EXPECT_LT(fast_exp(88.72f), kInf);
  EXPECT_TRUE(std::isnan(fast_exp(kNan)));
}

TEST(Math, TanhWithinTwoUlps) {
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LE(worst(-12, 12, fast_tanh<float>, exact), 2.0);
  EXPECT_LE(worst(-0.7, 0.7, fast_tanh<float>, exact), 2.0);
  EXPECT_LE(worst(-1e-30, 1e-30, fast_tanh<float>, exact), 1.0);
  EXPECT_EQ(fast_tanh(kInf), 1.0f);
  EXPECT_EQ(fast_tanh(-kInf), -1.0f);
  EXPECT_TRUE(std::signbit(fast_tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(fast_tanh(kNan)));
}

TEST(Math, SigmoidWithinThreeUlps) {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LE(worst(-87, 30, fast_sigmoid<float>, exact), 3.0);
  EXPECT_EQ(fast_sigmoid(0.0f), 0.5f);
  EXPECT_EQ(fast_sigmoid(kInf), 1.0f);
  EXPECT_EQ(fast_sigmoid(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(fast_sigmoid(kNan)));
}

TEST(Math, LogWithinTwoUlps) {
  const auto exact = [](double x) { return std::log(x); };
  EXPECT_LE(worst(0.5, 2, fast_log<float>, exact), 2.0);
  EXPECT_LE(worst(1e-30, 1e3, fast_log<float>, exact), 2.0);
  for (int e = -149; e < 128; ++e) {
    const float x = std::ldexp(1.0f, e) * (e > -120 ? 1.3f : 1.0f);
    EXPECT_LE(ulps(fast_log(x), std::log(static_cast<double>(x))), 2.0) << x;
  }
  EXPECT_EQ(fast_log(1.0f), 0.0f);
  EXPECT_EQ(fast_log(0.0f), -kInf);
  EXPECT_EQ(fast_log(kInf), kInf);
  EXPECT_TRUE(std::isnan(fast_log(-1.0f)));
  EXPECT_TRUE(std::isnan(fast_log(kNan)));
}

TEST(Math, DoubleIsTheStandardLibrary) {
  EXPECT_EQ(fast_exp(1.5), std::exp(1.5));
  EXPECT_EQ(fast_tanh(-0.3), std::tanh(-0.3));
  EXPECT_EQ(fast_log(7.0), std::log(7.0));
  EXPECT_NEAR(fast_sigmoid(0.7), 1 / (1 + std::exp(-0.7)), 1e-16);
}

}  // namespace
}  // namespace lmx
