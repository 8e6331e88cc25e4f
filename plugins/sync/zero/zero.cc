// ZeRO, stages 1 and 2 (Rajbhandari et al. 2020).
#include "lmx/plugin.h"
#include "lmx/shard_strategy.h"

namespace {

using namespace lmx;

std::unique_ptr<SyncRule> make_zero(const Node& config, const std::string& path, const SyncEnv& env) {
  return std::make_unique<ShardStrategy>(read_config<ShardConfig>(config, path), env);
}

}  // namespace

LMX_PLUGIN(sync, zero, ShardConfig, make_zero)
