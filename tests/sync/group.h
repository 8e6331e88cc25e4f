// A group of virtual ranks for tests.
#pragma once

#include <mutex>

#include "comm/rank_device.h"
#include "lmx/comm.h"
#include "lmx/context.h"
#include "lmx/plugin.h"
#include "recipe/comm_config.h"

namespace lmx::sync_test {

inline std::unique_ptr<CommGroup> make_group(int ranks, int per_node = 0) {
  static const bool once = [] {
    Registry::instance().add_default_directories();
    return true;
  }();
  static_cast<void>(once);
  return make_comm_group(parse_yaml(str("name: virtual\nranks: ", ranks, "\nranks_per_node: ", per_node), "group.yaml"),
                         "comm", {});
}

using comm::rank_context;

}  // namespace lmx::sync_test
