// ZeRO, stages 1 and 2 (Rajbhandari et al. 2020).
#include "lmx/plugin.h"
#include "lmx/shard_strategy.h"

LMX_PLUGIN(sync, zero, lmx::ShardConfig, lmx::ShardStrategy)
