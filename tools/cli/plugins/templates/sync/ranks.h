// Virtual ranks for the tests of this strategy.
#pragma once

#include <functional>
#include <string>

#include "lmx/plugin.h"
#include "lmx/sync.h"

// The plugin that a config names: one of lmx, or this one.
inline const lmx::PluginInfo& find(lmx::PluginKind kind, const lmx::Node& config) {
  static const bool once = [] {
    lmx::Registry::instance().add_default_directories();  // the virtual ranks
    lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
    return true;
  }();
  static_cast<void>(once);
  return lmx::Registry::instance().find(kind, config, "test");
}

// Calls `body` on each of `ranks` ranks, with a strategy of its own for one parameter, "bias" (size). `yaml`: the rule.
inline void on_ranks(const std::string& yaml, int ranks, int64_t size,
                     const std::function<void(lmx::Context&, lmx::SyncRule&)>& body) {
  const lmx::Node comm = lmx::parse_yaml(lmx::str("{name: virtual, ranks: ", ranks, "}"), "test");
  const lmx::Node rule = lmx::parse_yaml(yaml, "test");
  const auto group = lmx::create<lmx::CommFactory>(find(lmx::PluginKind::comm, comm), comm, "comm", lmx::CommEnv{1, {}});
  const lmx::PluginInfo& plugin = find(lmx::PluginKind::sync, rule);
  group->run([&](lmx::Communicator& ends) {
    lmx::Context ctx;
    ctx.rank = ends.rank();
    ctx.ranks = ends.size();
    ctx.allocator = ctx.host = ends.allocator();
    ctx.comm = &ends;
    const lmx::SyncEnv env{"test", {{"bias", {size}, {}, false}}, ctx.rank, ctx.ranks, lmx::RandomKey(1)};
    const auto strategy = lmx::create<lmx::SyncFactory>(plugin, rule, "sync.test", env);
    body(ctx, *strategy);
  });
}
