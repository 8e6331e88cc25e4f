// Tests of this strategy beyond those of `lmx plugins check`.
#include <gtest/gtest.h>

#include "lmx/replica_strategy.h"
#include "ranks.h"

namespace {

// The values with which each of `ranks` ranks continues, if the anchor is {0, 0} and rank r has the values {r + 1, -4}.
std::vector<std::vector<float>> merged(const std::string& yaml, int ranks) {
  std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
  on_ranks(yaml, ranks, 2, [&](lmx::Context& ctx, lmx::SyncRule& rule) {
    const std::vector<float> own{static_cast<float>(ctx.rank + 1), -4};
    lmx::Fragment f{.size = 2, .own = lmx::Tensor::from<float>(ctx.allocator, {2}, own), .anchor = ctx.zeros({2})};
    const lmx::Tensor received = rule.replica()->exchange(ctx, f);
    const lmx::Tensor values = rule.replica()->merge(ctx, f, received).own;
    const auto list = std::as_const(values).values<float>();
    results[static_cast<size_t>(ctx.rank)] = {list.begin(), list.end()};
  });
  return results;
}

TEST(@Name@, EveryRankContinuesFromTheMean) {
  EXPECT_EQ(merged("name: @name@", 3), std::vector<std::vector<float>>(3, {2, -4}));
}

TEST(@Name@, AWrongFieldIsRefused) { EXPECT_THROW(merged("{name: @name@, every: 0}", 1), lmx::UserError); }

}  // namespace
