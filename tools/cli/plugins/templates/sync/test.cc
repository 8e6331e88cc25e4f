// Tests of this strategy beyond those of `lmx plugins check`.
#include <gtest/gtest.h>

#include <mutex>

#include "lmx/plugin.h"
#include "lmx/sync.h"

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

// A parameter of one number, of which rank r has the gradient r + 1, on `ranks` ranks: what each has afterwards.
std::vector<float> reduced(const std::string& yaml, int ranks) {
  const lmx::Node comm = lmx::parse_yaml(lmx::str("{name: virtual, ranks: ", ranks, "}"), "test");
  const lmx::Node rule = lmx::parse_yaml(yaml, "test");
  std::vector<float> results(static_cast<size_t>(ranks));
  const auto group = lmx::create<lmx::CommFactory>(find(lmx::PluginKind::comm, comm), comm, "comm", lmx::CommEnv{1, {}});
  const lmx::PluginInfo& plugin = find(lmx::PluginKind::sync, rule);
  group->run([&](lmx::Communicator& ends) {
    lmx::Context ctx;
    ctx.rank = ends.rank();
    ctx.ranks = ends.size();
    ctx.allocator = ctx.host = ends.allocator();
    ctx.comm = &ends;
    const lmx::SyncEnv env{"test", {{"bias", {1}, {}, false}}, ctx.rank, ctx.ranks, lmx::RandomKey(1)};
    const auto strategy = lmx::create<lmx::SyncFactory>(plugin, rule, "sync.test", env);
    lmx::Var bias(ctx.zeros({1}), true, "bias");
    const std::vector<float> own{static_cast<float>(ctx.rank + 1)};
    bias.grad().dense = lmx::Tensor::from<float>(ctx.allocator, {1}, own);
    strategy->strategy()->reduce(ctx, std::span(&bias, 1));
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
