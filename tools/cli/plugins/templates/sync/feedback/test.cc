// Tests of this strategy beyond those of `lmx plugins check`.
#include <gtest/gtest.h>

#include <algorithm>

#include "ranks.h"

namespace {

// A parameter of two numbers, of which rank r has the gradient {r + 1, -2}, on `ranks` ranks: what each has afterwards,
// one after the other.
std::vector<float> reduced(const std::string& yaml, int ranks) {
  std::vector<float> results(static_cast<size_t>(2 * ranks));
  on_ranks(yaml, ranks, 2, [&](lmx::Context& ctx, lmx::SyncRule& rule) {
    lmx::Var bias(ctx.zeros({2}), true, "bias");
    const std::vector<float> own{static_cast<float>(ctx.rank + 1), -2};
    bias.grad().dense = lmx::Tensor::from<float>(ctx.allocator, {2}, own);
    rule.strategy()->reduce(ctx, std::span(&bias, 1));
    const auto sum = bias.grad().dense.values<float>();
    std::copy(sum.begin(), sum.end(), results.begin() + 2 * ctx.rank);
  });
  return results;
}

TEST(@Name@, RanksSendTheirLargestEntry) {
  EXPECT_EQ(reduced("{name: @name@, keep: 0.5}", 1), (std::vector<float>{1, -2}));  // one rank sends nothing
  EXPECT_EQ(reduced("{name: @name@, keep: 0.5}", 3), (std::vector<float>{5, -2, 5, -2, 5, -2}));
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(reduced("{name: @name@, keep: 0}", 1), lmx::UserError);
}

}  // namespace
