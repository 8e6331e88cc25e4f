// lmx/math.h: float functions against the double standard library over the whole range, and at the edges.
#include "lmx/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

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
