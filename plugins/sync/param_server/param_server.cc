// Asynchronous SGD with a server that is partitioned over the ranks. Every pull copies all parameters of the rule.
#include "lmx/param_server.h"

#include "lmx/plugin.h"

namespace {

using namespace lmx;

std::unique_ptr<SyncRule> make_param_server(const Node& config, const std::string& path, const SyncEnv& env) {
  return std::make_unique<ServerStrategy>(read_config<ServerConfig>(config, path), env);
}

}  // namespace

LMX_PLUGIN(sync, param_server, ServerConfig, make_param_server)
