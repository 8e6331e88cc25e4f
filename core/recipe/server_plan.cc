#include "recipe/server_plan.h"

#include "lmx/param_server.h"

namespace lmx {

ServerPlan plan_servers(const SyncRules& sync, const std::function<TableRows(const ParameterSpec&)>& rows) {
  ServerPlan all;
  for (const ServerStrategy* server : sync.servers()) {
    const SyncEnv& env = server->env();
    Traffic traffic{.rank = 0, .ranks = env.ranks, .dense = {}, .sparse = {}};
    if (env.ranks_per_node > 0) traffic.ranks_per_node = env.ranks_per_node;
    for (const ParameterSpec& spec : env.params) {
      const size_t tables = traffic.sparse.size();
      server->plan(traffic, spec, rows(spec));
      all.rows[spec.name] = traffic.sparse.size() > tables ? traffic.sparse.back().unique[0] : spec.shape[0];
    }
    all.local += server->step_bytes(traffic, 0, 0).reply;
    for (int shard = 1; shard < env.ranks; ++shard) {
      const ServerStrategy::StepBytes bytes = server->step_bytes(traffic, 0, shard);
      all.requested += bytes.request;
      all.replied += bytes.reply;
      all.pushed += bytes.push;
    }
    all.moved += server->moved_bytes(traffic);
  }
  return all;
}

}  // namespace lmx
