// Tests of this strategy beyond those of `lmx plugins check`.
#include <gtest/gtest.h>

#include <algorithm>

#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"

namespace {

const lmx::PluginInfo& find(lmx::PluginKind kind, const lmx::Node& config) {
  static const bool once = [] {
    lmx::Registry::instance().add_default_directories();  // the virtual ranks
    lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
    return true;
  }();
  EXPECT_TRUE(once);
  return lmx::Registry::instance().find(kind, config, "test");
}

// The new anchor of two values, if the anchor is {0, 0} and rank r of `ranks` has the values {r + 1, -4}.
std::vector<float> merged(const std::string& yaml, int ranks) {
  const lmx::Node comm = lmx::parse_yaml(lmx::str("{name: virtual, ranks: ", ranks, "}"), "test");
  const lmx::Node rule = lmx::parse_yaml(yaml, "test");
  std::vector<float> result(2);
  const auto group = lmx::create<lmx::CommFactory>(find(lmx::PluginKind::comm, comm), comm, "comm", lmx::CommEnv{1, {}});
  const lmx::PluginInfo& plugin = find(lmx::PluginKind::sync, rule);
  group->run([&](lmx::Communicator& ends) {
    lmx::Context ctx;
    ctx.rank = ends.rank();
    ctx.ranks = ends.size();
    ctx.allocator = ctx.host = ends.allocator();
    ctx.comm = &ends;
    const lmx::SyncEnv env{"test", {{"bias", {2}, {}, false}}, ctx.rank, ctx.ranks, lmx::RandomKey(1)};
    const auto strategy = lmx::create<lmx::SyncFactory>(plugin, rule, "sync.test", env);
    const std::vector<float> own{static_cast<float>(ctx.rank + 1), -4};
    lmx::Fragment f{0, 2, {"bias"}, lmx::Tensor::from<float>(ctx.allocator, {2}, own), ctx.zeros({2})};
    const lmx::Tensor received = strategy->replica()->exchange(ctx, f);
    const lmx::Tensor anchor = strategy->replica()->merge(ctx, f, received).anchor;
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
