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
// The sum over all rules; zeros if ranks are in step. All workers count as alike. `rows`: those of one worker, also as
// `all`, since no other worker's rows take part in its exchange.
ServerPlan plan_servers(const SyncRules& sync, const std::function<TableRows(const ParameterSpec&)>& rows);

}  // namespace lmx
