// DiLoCo (Douillard et al. 2023) and streaming DiLoCo (Douillard et al. 2025).
#include "lmx/plugin.h"
#include "lmx/replica_strategy.h"

LMX_PLUGIN(sync, diloco, lmx::OuterConfig, lmx::OuterStrategy)
