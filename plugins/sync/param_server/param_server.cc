// Asynchronous SGD with a server that is partitioned over the ranks. Every pull copies all parameters of the rule.
#include "lmx/param_server.h"

#include "lmx/plugin.h"

LMX_PLUGIN(sync, param_server, lmx::ServerConfig, lmx::ServerStrategy)
