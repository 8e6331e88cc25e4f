// Tests of this strategy beyond those of `lmx plugins check`.
#include <gtest/gtest.h>

#include "lmx/shard_strategy.h"
#include "ranks.h"

namespace {

// The elements that each of `ranks` ranks owns of one parameter with `size` elements.
std::vector<int64_t> owned(const std::string& yaml, int ranks, int64_t size) {
  std::vector<int64_t> own(static_cast<size_t>(ranks));
  on_ranks(yaml, ranks, size, [&](lmx::Context& ctx, lmx::SyncRule& rule) {
    const auto r = static_cast<size_t>(ctx.rank);
    const lmx::Owners begin = rule.shard()->owners({}).at("bias");
    own[r] = begin[r + 1] - begin[r];
  });
  return own;
}

TEST(@Name@, OneRankOwnsTheParameter) { EXPECT_EQ(owned("name: @name@", 3, 20'000), (std::vector<int64_t>{20'000, 0, 0})); }

TEST(@Name@, AWrongFieldIsRefused) { EXPECT_THROW(owned("{name: @name@, stage: 4}", 1, 5), lmx::UserError); }

}  // namespace
