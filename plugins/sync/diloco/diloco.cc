// DiLoCo (Douillard et al. 2023) and streaming DiLoCo (Douillard et al. 2025).
#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"

namespace {

using namespace lmx;

std::unique_ptr<SyncRule> make_diloco(const Node& config, const std::string& path, const SyncEnv& env) {
  return std::make_unique<OuterStrategy>(read_config<OuterConfig>(config, path), env);
}

}  // namespace

LMX_PLUGIN(sync, diloco, OuterConfig, make_diloco)
