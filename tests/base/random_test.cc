// lmx/random.h: the published vectors of Philox 4x32-10, and what keys and permutations promise.
#include "lmx/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace lmx {
namespace {

using Block = std::array<uint32_t, 4>;

// Random123's kat_vectors, lines "philox4x32 10".
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f, f, f}, {f, f}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomKey, PureFunctionOfKeyAndIndex) {
  const RandomKey key(7);
  EXPECT_EQ(key.bits(5), RandomKey(7).bits(5));
  EXPECT_NE(key.bits(5), key.bits(6));
  EXPECT_NE(key.bits(5), RandomKey(8).bits(5));
  EXPECT_NE(key.bits(0), key.bits(uint64_t{1} << 32));  // the upper half of the index counts
}

TEST(RandomKey, FoldsAreDistinctKeys) {
  const RandomKey key(1);
  std::set<uint64_t> seen{key.value()};
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(key.fold(i).value()).second);
  for (const char* purpose : {"", "dropout", "dropout ", "init:embedding.weight", "init:softmax.weight"}) {
    EXPECT_TRUE(seen.insert(key.fold(purpose).value()).second) << purpose;
  }
  EXPECT_NE(key.fold("a").fold("b").value(), key.fold("b").fold("a").value());
  EXPECT_NE(key.fold(uint64_t{3}).value(), key.bits(3));  // a derived key is not a draw
}

TEST(RandomKey, UniformMoments) {
  const RandomKey key = RandomKey(3).fold("uniform");
  const int n = 200000;
  double sum = 0, squares = 0, lowest = 1, highest = 0;
  for (int i = 0; i < n; ++i) {
    const double u = key.uniform(static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
    lowest = std::min(lowest, u);
    highest = std::max(highest, u);
  }
  EXPECT_NEAR(sum / n, 0.5, 0.003);
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.003);
  EXPECT_LT(lowest, 1e-4);
  EXPECT_GT(highest, 1 - 1e-4);
}

TEST(RandomKey, NormalMoments) {
  const RandomKey key = RandomKey(3).fold("normal");
  const int n = 200000;
  double moments[4] = {};
  for (int i = 0; i < n; ++i) {
    const double z = key.normal(static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(z));
    for (int p = 0; p < 4; ++p) moments[p] += std::pow(z, p + 1) / n;
  }
  EXPECT_NEAR(moments[0], 0, 0.01);
  EXPECT_NEAR(moments[1], 1, 0.02);
  EXPECT_NEAR(moments[2], 0, 0.05);
  EXPECT_NEAR(moments[3], 3, 0.1);
}

TEST(RandomKey, BelowCoversItsRangeEvenly) {
  const RandomKey key(11);
  std::vector<int> counts(7);
  for (uint64_t i = 0; i < 70000; ++i) ++counts[key.below(i, 7)];
  for (const int c : counts) EXPECT_NEAR(c, 10000, 400);
  EXPECT_EQ(key.below(0, 1), 0u);
  EXPECT_LT(key.below(0, ~uint64_t{0}), ~uint64_t{0});
}

TEST(Permute, IsABijectionForEverySize) {
  for (uint64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    std::vector<char> hit(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t j = permute(RandomKey(n), i, n);
      ASSERT_LT(j, n);
      ASSERT_FALSE(hit[j]) << "n " << n << " index " << i;
      hit[j] = 1;
    }
  }
}

TEST(Permute, WorksAtTheEndOfTheRange) {
  const uint64_t n = (uint64_t{1} << 63) + 12345;
  std::set<uint64_t> seen;
  for (uint64_t i = n - 100; i < n; ++i) {
    const uint64_t j = permute(RandomKey(1), i, n);
    EXPECT_LT(j, n);
    EXPECT_TRUE(seen.insert(j).second);
  }
}

TEST(Permute, EveryPlaceIsAsLikelyAsAnother) {
  for (uint64_t n : {5, 12}) {
    std::vector<int> counts(n * n);
    const int keys = 6000;
    for (int k = 0; k < keys; ++k) {
      for (uint64_t i = 0; i < n; ++i) ++counts[i * n + permute(RandomKey(9).fold(static_cast<uint64_t>(k)), i, n)];
    }
    const double expected = keys / static_cast<double>(n), sigma = std::sqrt(expected);
    for (const int c : counts) EXPECT_NEAR(c, expected, 5 * sigma) << n;
  }
}

TEST(Permute, NeighboursDoNotStayNeighbours) {
  const uint64_t n = 10000;
  int adjacent = 0;
  for (uint64_t i = 0; i + 1 < n; ++i) {
    const uint64_t a = permute(RandomKey(2), i, n), b = permute(RandomKey(2), i + 1, n);
    adjacent += a + 1 == b || b + 1 == a;
  }
  EXPECT_LT(adjacent, 15);  // two expected
}

}  // namespace
}  // namespace lmx
