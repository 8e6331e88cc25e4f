// A group of virtual ranks for tests.
#pragma once

#include <mutex>

#include "lmx/comm.h"
#include "lmx/context.h"
#include "lmx/plugin.h"

namespace lmx::sync_test {

inline std::unique_ptr<CommGroup> make_group(int ranks, int per_node = 0) {
  static const bool once = [] {
    Registry::instance().add_default_directories();
    return true;
  }();
  static_cast<void>(once);
  Node config = parse_yaml(str("name: virtual\nranks: ", ranks, "\nranks_per_node: ", per_node), "group.yaml");
  const PluginInfo& plugin = Registry::instance().find(PluginKind::comm, config, "comm");
  return create<CommFactory>(plugin, config, "comm", CommEnv{});
}

// The context of a rank of such a group.
inline Context context_of(Communicator& comm) {
  Context ctx;
  ctx.rank = comm.rank();
  ctx.ranks = comm.size();
  ctx.allocator = comm.allocator();
  ctx.comm = &comm;
  return ctx;
}

}  // namespace lmx::sync_test
