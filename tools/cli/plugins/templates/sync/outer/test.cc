// Tests of this strategy beyond those of `lmx plugins check`.
#include <gtest/gtest.h>

#include <algorithm>

#include "lmx/replica_strategy.h"
#include "ranks.h"

namespace {

// The new anchor of two values, if the anchor is {0, 0} and rank r of `ranks` has the values {r + 1, -4}.
std::vector<float> merged(const std::string& yaml, int ranks) {
  std::vector<float> result(2);
  on_ranks(yaml, ranks, 2, [&](lmx::Context& ctx, lmx::SyncRule& rule) {
    const std::vector<float> own{static_cast<float>(ctx.rank + 1), -4};
    lmx::Fragment f{.size = 2, .own = lmx::Tensor::from<float>(ctx.allocator, {2}, own), .anchor = ctx.zeros({2})};
    const lmx::Tensor received = rule.replica()->exchange(ctx, f);
    const lmx::Tensor anchor = rule.replica()->merge(ctx, f, received).anchor;
    if (ctx.rank == 0) std::copy_n(std::as_const(anchor).values<float>().begin(), 2, result.begin());
  });
  return result;
}

TEST(@Name@, TheAnchorMovesByTheMeanOfTheLargestChanges) {
  const std::string plain = "name: @name@, outer_lr: 1, outer_momentum: 0, keep: ";
  EXPECT_EQ(merged("{" + plain + "1}", 3), (std::vector<float>{2, -4}));
  EXPECT_EQ(merged("{" + plain + "0.5}", 3), (std::vector<float>{0, -4}));
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(merged("{name: @name@, keep: 0}", 1), lmx::UserError);
}

}  // namespace
