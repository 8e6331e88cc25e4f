// Fractions of a sweep's variance, compared with numbers calculated by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "app/report/compare.h"

namespace lmx_test {
namespace {

using lmx_cli::reports::importance_of;

TEST(Importance, SharesOfVariance) {
  // Values 1, 3, 5, 7: the squared differences from the mean 4 sum to 20. Means by a: 2 and 6, 2 * (4 + 4) = 16; by b:
  // 3 and 5, 2 * (1 + 1) = 4.
  const auto shares = importance_of({"b", "a"}, {{"x", "1"}, {"y", "1"}, {"x", "2"}, {"y", "2"}}, {1, 3, 5, 7});
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].axis, "a");
  EXPECT_NEAR(shares[0].share, 16.0 / 20, 1e-12);
  EXPECT_EQ(shares[1].axis, "b");
  EXPECT_NEAR(shares[1].share, 4.0 / 20, 1e-12);
  EXPECT_NEAR(shares[0].chance, 1.0 / 3, 1e-12);
}

// An axis of one value, an axis on which no value is repeated, and points without a value give no estimate.
TEST(Importance, LeavesOutWhatCannotBeEstimated) {
  const auto shares = importance_of(
      {"same", "unique", "a"}, {{"s", "1", "x"}, {"s", "2", "x"}, {"s", "3", "y"}, {"s", "4", "y"}, {"s", "5", "z"}},
      {1, 1, 2, 2, NAN});
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0].axis, "a");
  EXPECT_NEAR(shares[0].share, 1, 1e-12);
  EXPECT_TRUE(importance_of({"a"}, {{"1"}, {"2"}, {"1"}}, {3, 3, 3}).empty());
  EXPECT_TRUE(importance_of({"a"}, {{"1"}, {"2"}}, {3, 4}).empty());
}

}  // namespace
}  // namespace lmx_test
