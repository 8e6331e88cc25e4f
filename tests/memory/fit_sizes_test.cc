// The sub-batches from which batch.fit chooses, and the search for the largest one.
#include "app/memory/batch_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lmx::app {
namespace {

constexpr BatchPlan kSequences{.item_tokens = 20};
constexpr BatchPlan kSubBatches{.items = Items::sub_batches, .item_tokens = 1000};

Recipe with_batch(int64_t global, int64_t micro = 0, int64_t micro_tokens = 0) {
  Recipe r;
  r.batch.global = global;
  r.batch.micro = micro;
  r.batch.micro_tokens = micro_tokens;
  return r;
}

// For every limit, the search finds exactly the largest size that fits, and asks for few.
TEST(FitSizes, TheSearchIsExact) {
  for (const int64_t global : {1, 2, 3, 7, 64, 100, 1023, 1024, 1025}) {
    const FitSizes sizes(with_batch(global), kSequences, 1, 0);
    for (int64_t limit = 0; limit <= global + 2; ++limit) {
      std::multiset<int64_t> asked;
      const int64_t found = sizes.largest([&](const BatchConfig& batch) {
        asked.insert(batch.micro);
        return batch.micro <= limit;
      });
      EXPECT_EQ(found, std::min(limit, global)) << global << " " << limit;
      EXPECT_LE(asked.size(), 25u) << global << " " << limit;
      EXPECT_EQ(asked.size(), std::set<int64_t>(asked.begin(), asked.end()).size()) << "a size was tried twice";
    }
  }
}

// Small passes keep so many pieces of a gradient that they do not fit, although larger ones do.
TEST(FitSizes, SmallPassesMayNeedMoreMemory) {
  const FitSizes sizes(with_batch(64), kSequences, 1, 0);
  const auto bytes = [](const BatchConfig& batch) { return batch.micro + 400 / batch.micro; };
  for (int64_t limit = 41; limit <= 70; ++limit) {
    int64_t most = 0;
    for (int64_t size = 1; size <= 64; ++size)
      if (bytes(with_batch(64, size).batch) <= limit) most = size;
    EXPECT_EQ(sizes.largest([&](const BatchConfig& batch) { return bytes(batch) <= limit; }), most) << limit;
  }
  EXPECT_EQ(sizes.largest([&](const BatchConfig& batch) { return bytes(batch) <= 38; }), 0);
  EXPECT_EQ(sizes.cheapest(bytes), 16);
  EXPECT_EQ(FitSizes(with_batch(0), kSequences, 1, 100'000).cheapest(bytes), 1)
      << "a share of one pass is not searched";
}

// Without a text that limits the batch, sizes grow from below: none is much larger than one that fits.
TEST(FitSizes, NoHugeBatchIsTried) {
  const FitSizes sizes(with_batch(0), kSequences, 4, kUnknownTokens);
  int64_t most = 0;
  const int64_t found = sizes.largest([&](const BatchConfig& batch) {
    most = std::max(most, batch.micro);
    return batch.micro <= 1000;
  });
  EXPECT_EQ(found, 1000);
  EXPECT_LE(most, 2 * 1000 + 1);
}

TEST(FitSizes, TheShareOfARankAndTheRecipeLimitAPass) {
  EXPECT_EQ(FitSizes(with_batch(64), kSequences, 1, 0).most(), 64);
  EXPECT_EQ(FitSizes(with_batch(64), kSequences, 3, 0).most(), 22) << "the largest share";
  EXPECT_EQ(FitSizes(with_batch(64, 5), kSequences, 3, 0).most(), 5);
  EXPECT_EQ(FitSizes(with_batch(6), kSubBatches, 3, 0).most(), 2000);
  EXPECT_EQ(FitSizes(with_batch(6, 0, 700), kSubBatches, 3, 0).most(), 700);
  EXPECT_EQ(FitSizes(with_batch(6, 0, 10), kSubBatches, 3, 0).least(), 10) << "below a sentence, if the recipe is";
}

TEST(FitSizes, AGivenBatchStaysAndAnOpenOneGrows) {
  const BatchConfig given = FitSizes(with_batch(64), kSequences, 3, 0).batch(7);
  EXPECT_EQ(given.global, 64);
  EXPECT_EQ(given.micro, 7);
  const BatchConfig open = FitSizes(with_batch(0), kSequences, 3, 1'000'000).batch(7);
  EXPECT_EQ(open.global, 21);
  EXPECT_EQ(open.micro, 7);
  const FitSizes pairs(with_batch(0), kSubBatches, 3, 10'000'000);
  EXPECT_EQ(pairs.batch(2500).global, 6) << "two whole sub-batches on each rank";
  EXPECT_EQ(pairs.batch(2500).micro_tokens, 2500);
  EXPECT_EQ(pairs.batch(300).global, 3) << "one sub-batch on each rank, in several passes";
}

// 100 steps of an epoch: the last target follows the last input.
TEST(FitSizes, AnOpenBatchLeavesAHundredSteps) {
  EXPECT_EQ(FitSizes(with_batch(0), kSequences, 1, 20'000).most(), 9);
  EXPECT_EQ(FitSizes(with_batch(0), kSequences, 1, 20'001).most(), 10);
  EXPECT_EQ(FitSizes(with_batch(0), kSequences, 5, 20'001).most(), 2);
  EXPECT_EQ(FitSizes(with_batch(0), kSequences, 1, 5).most(), 1);
}

TEST(FitSizes, AFailedProbeIsFollowedByThreeQuarters) {
  const FitSizes sizes(with_batch(64), kSequences, 1, 0);
  EXPECT_EQ(sizes.lower(64), 48);
  EXPECT_EQ(sizes.lower(2), 1);
  EXPECT_EQ(sizes.lower(1), 0);
  const FitSizes pairs(with_batch(2), kSubBatches, 1, 0);
  EXPECT_EQ(pairs.lower(30), pairs.least());
  EXPECT_EQ(pairs.lower(pairs.least()), 0);
}

TEST(FitSizes, TextsCountWhatAnUpdateHas) {
  const FitSizes sizes(with_batch(64), kSequences, 2, 0);
  EXPECT_EQ(sizes.update_text(12),
            "passes of 12 sequences, 3 accumulated on each of 2 ranks: an update has 64 sequences, 1,280 tokens");
  EXPECT_EQ(sizes.update_text(32),
            "one pass of 32 sequences on each of 2 ranks: an update has 64 sequences, 1,280 tokens");
  EXPECT_EQ(FitSizes(with_batch(1), kSequences, 1, 0).update_text(1),
            "one pass of 1 sequence: an update has 1 sequence, 20 tokens");
  EXPECT_EQ(
      FitSizes(with_batch(6), kSubBatches, 2, 0).update_text(700),
      "passes of 700 target tokens, at most 5 accumulated on each of 2 ranks: an update has 6 sub-batches, at most "
      "6,000 target tokens");
}

TEST(FitSizes, NotEveryRankHasAnItem) {
  EXPECT_EQ(FitSizes(with_batch(2), kSequences, 4, 0).update_text(1),
            "one pass of 1 sequence on 2 of 4 ranks: an update has 2 sequences, 40 tokens");
}

TEST(FitSizes, TheReasonForTheLimit) {
  EXPECT_EQ(FitSizes(with_batch(64), kSequences, 2, 0).limit_text(32), "") << "the share of a rank";
  EXPECT_EQ(FitSizes(with_batch(64, 5), kSequences, 2, 0).limit_text(5), "; batch.micro allows no more");
  EXPECT_EQ(FitSizes(with_batch(64, 5), kSequences, 2, 0).limit_text(4), "") << "the memory";
  EXPECT_EQ(FitSizes(with_batch(2, 0, 70), kSubBatches, 2, 0).limit_text(70), "; batch.micro_tokens allows no more");
  EXPECT_EQ(FitSizes(with_batch(0), kSequences, 1, 20'000).limit_text(9),
            "; a larger batch would leave fewer than 100 steps in an epoch");
}

}  // namespace
}  // namespace lmx::app
