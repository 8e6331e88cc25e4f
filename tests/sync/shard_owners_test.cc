// Which rank owns which elements, if ranks divide the update.
#include <gtest/gtest.h>

#include <numeric>

#include "lmx/shard_strategy.h"

namespace lmx::sync_test {
namespace {

using Load = std::vector<int64_t>;
constexpr int64_t kBlock = kSumBlock;

TEST(Owners, WholeParametersGoToTheRankWithTheLeast) {
  Load load(3);
  const OwnersOf all =
      whole_owners({{"a", {10}, {}}, {"b", {7, 10}, {}}, {"c", {40}, {}}, {"d", {60}, {}}, {"e", {10}, {}}}, load);
  EXPECT_EQ(all.at("b"), (Owners{0, 70, 70, 70}));
  EXPECT_EQ(all.at("d"), (Owners{0, 0, 60, 60}));
  EXPECT_EQ(all.at("c"), (Owners{0, 0, 0, 40}));
  EXPECT_EQ(all.at("a"), (Owners{0, 0, 0, 10}));
  EXPECT_EQ(all.at("e"), (Owners{0, 0, 0, 10}));
  EXPECT_EQ(load, (Load{70, 60, 60}));
}

// Seven blocks for three ranks, the last one of `b` with five elements.
TEST(Owners, BlocksAreDividedInRankOrder) {
  Load load{100, 0, 50};
  const OwnersOf all = block_owners({{"a", {3 * kBlock}, {}}, {"b", {3 * kBlock + 5}, {}}}, load);
  EXPECT_EQ(all.at("a"), (Owners{0, 2 * kBlock, 3 * kBlock, 3 * kBlock}));
  EXPECT_EQ(all.at("b"), (Owners{0, 0, 2 * kBlock, 3 * kBlock + 5}));
  EXPECT_EQ(load, (Load{100 + 2 * kBlock, 3 * kBlock, 50 + kBlock + 5}));
}

// Parameters of less than a block, each in a unit of its own: no rank has two of them more than another one.
TEST(Owners, ManySmallUnitsAreSpread) {
  Load load(4);
  for (int i = 0; i < 18; ++i) block_owners({{"p", {100}, {}}}, load);
  EXPECT_EQ(load, (Load{500, 500, 400, 400}));
}

}  // namespace
}  // namespace lmx::sync_test
