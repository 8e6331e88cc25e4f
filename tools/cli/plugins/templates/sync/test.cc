// Tests of this strategy beyond those of `lmx plugins check`.
#include <gtest/gtest.h>

#include "ranks.h"

namespace {

// A parameter of one number, of which rank r has the gradient r + 1, on `ranks` ranks: what each has afterwards.
std::vector<float> reduced(const std::string& yaml, int ranks) {
  std::vector<float> results(static_cast<size_t>(ranks));
  on_ranks(yaml, ranks, 1, [&](lmx::Context& ctx, lmx::SyncRule& rule) {
    lmx::Var bias(ctx.zeros({1}), true, "bias");
    const std::vector<float> own{static_cast<float>(ctx.rank + 1)};
    bias.grad().dense = lmx::Tensor::from<float>(ctx.allocator, {1}, own);
    rule.strategy()->reduce(ctx, std::span(&bias, 1));
    results[static_cast<size_t>(ctx.rank)] = bias.grad().dense.data<float>()[0];
  });
  return results;
}

TEST(@Name@, EveryRankHasTheSum) {
  EXPECT_EQ(reduced("{name: @name@}", 1), (std::vector<float>{1}));
  EXPECT_EQ(reduced("{name: @name@@codec@}", 3), (std::vector<float>{6, 6, 6}));
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(reduced("{name: @name@, @wrong@}", 1), lmx::UserError);
}

}  // namespace
