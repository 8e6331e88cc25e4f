// The expected exchange of workers with a parameter server, for estimates before a run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "recipe/sync_rules.h"

namespace lmx {

// The exchange of one worker's step with a server that is divided over the ranks, in bytes.
struct ServerPlan {
  int64_t requested = 0, replied = 0, pushed = 0;  // with the shards of all other ranks
  int64_t local = 0;                               // values that its own shard replies
  int64_t moved = 0;                               // TrafficModel::moved_bytes(): of a rank, as a worker and as a shard
  std::map<std::string, int64_t> rows;             // by parameter: rows that a push changes
};
// Of all rules together; zeros if ranks are in step. `rows`: of one worker, whose rows are then those of `all`. All
// workers count as alike.
ServerPlan plan_servers(const SyncRules& sync, const std::function<TableRows(const ParameterSpec&)>& rows);

}  // namespace lmx
