// EvalPlan: every token but the first is a target exactly once, whatever the shape.
#include <gmock/gmock.h>

#include <map>
#include <numeric>

#include "fixture.h"
#include "lmx/batcher.h"
#include "names.h"

namespace lmx {
namespace {

using lmx_test::Names;

TokenArray counting(int64_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenArray::of(std::move(tokens));
}

TEST(EvalPlan, CoversEveryTargetOnceAndSlotsAreContiguous) {
  const auto allocator = Allocator::cpu();
  for (const int64_t n : {2, 3, 5, 17, 64, 65, 100, 257}) {
    for (const int64_t sequences : {1, 2, 3, 8, 64, 300}) {
      for (const int64_t length : {1, 4, 7, 1000}) {
        const EvalPlan plan(counting(n), sequences, length);
        EXPECT_EQ(plan.targets(), n - 1);
        EXPECT_LE(plan.slots(), sequences);
        std::vector<int> targets(static_cast<size_t>(n));
        std::map<int64_t, int32_t> last;  // of a slot: its last target
        for (int64_t i = 0; i < plan.batches(); ++i) {
          const Batch batch = plan.batch(i, allocator);
          ASSERT_GT(batch.sequences(), 0);
          ASSERT_LE(batch.inputs.dim(1), length);
          for (int64_t b = 0; b < batch.sequences(); ++b) {
            const int64_t slot = batch.slots[static_cast<size_t>(b)];
            ASSERT_LT(slot, plan.slots());
            const int32_t* inputs = batch.inputs.data<int32_t>() + b * batch.inputs.dim(1);
            EXPECT_EQ(batch.fresh[static_cast<size_t>(b)], !last.contains(slot));
            if (last.contains(slot)) {
              EXPECT_EQ(inputs[0], last[slot]);
            }
            for (int64_t t = 0; t < batch.inputs.dim(1); ++t) {
              const int32_t target = batch.targets.data<int32_t>()[b * batch.inputs.dim(1) + t];
              EXPECT_EQ(target, inputs[t] + 1);
              ++targets[static_cast<size_t>(target)];
              last[slot] = target;
            }
          }
        }
        EXPECT_EQ(targets[0], 0);
        EXPECT_EQ(std::count(targets.begin() + 1, targets.end(), 1), n - 1) << n << " " << sequences << " " << length;
      }
    }
  }
}

TEST(EvalPlan, RanksShareABatch) {
  const auto allocator = Allocator::cpu();
  const EvalPlan plan(counting(103), 8, 5);
  for (int64_t i = 0; i < plan.batches(); ++i) {
    const Batch whole = plan.batch(i, allocator);
    std::vector<int32_t> parts;
    for (int64_t first = 0; first < 8; first += 3) {
      const Batch part = plan.batch(i, first, 3, allocator);
      EXPECT_EQ(part.inputs.dim(1), whole.inputs.dim(1));
      EXPECT_EQ(part.slots.size(), static_cast<size_t>(part.sequences()));
      EXPECT_EQ(part.fresh.size(), part.slots.size());
      const auto values = part.targets.values<int32_t>();
      parts.insert(parts.end(), values.begin(), values.end());
    }
    const auto values = whole.targets.values<int32_t>();
    EXPECT_EQ(parts, std::vector<int32_t>(values.begin(), values.end()));
  }
}

TEST(EvalPlan, TooShort) {
  for (const int64_t n : {0, 1}) {
    EXPECT_THAT(lmx_test::user_error([&] { EvalPlan(counting(n), 4, 5, "test"); }),
                Names("test split", std::to_string(n) + " tokens", "at least 2"));
  }
}

TEST(MakeBatch, InputsAndTargets) {
  const std::vector<int64_t> starts{0, 5};
  const Batch batch = make_batch(counting(9), starts, 3, Allocator::cpu());
  EXPECT_EQ(batch.tokens(), 6);
  EXPECT_THAT(batch.inputs.values<int32_t>(), testing::ElementsAre(0, 1, 2, 5, 6, 7));
  EXPECT_THAT(batch.targets.values<int32_t>(), testing::ElementsAre(1, 2, 3, 6, 7, 8));
  EXPECT_THAT(batch.slots, testing::ElementsAre(0, 1));
  const std::vector<int64_t> outside{6};
  EXPECT_THROW(make_batch(counting(9), outside, 3, Allocator::cpu()), InternalError);
}

}  // namespace
}  // namespace lmx
