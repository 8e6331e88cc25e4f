// `sync:` of a recipe: assigns parameters to strategies.
#pragma once

#include <memory>
#include <string>

#include "recipe/exchanger.h"

namespace lmx {

// A rule of the plugin. `config`: its keys, with `name`. UserError: its config lacks the trait of its kind, such as
// trait::kReplicas, by which recipes are checked before a rule exists.
std::unique_ptr<SyncRule> make_sync_rule(const PluginInfo& plugin, const Node& config, const std::string& path,
                                         const SyncEnv& env);

// `sync:` of a recipe has named rules {params: pattern, strategy: name, ...}. A parameter belongs to the first rule
// that matches it. `all`: all parameters, and the key of all rules. UserError: a parameter without a rule, a rule
// without parameters, two rules that set the key of the candidates.
std::unique_ptr<Exchanger> make_exchanger(const Node& sync, const std::string& path, const SyncEnv& all);

// The rules with the values of all keys. UserError also if some rules are asynchronous and others are not, or if clocks
// differ.
Node full_sync_config(const Node& sync, const std::string& path);
bool is_asynchronous(const Node& sync, const std::string& path);
bool has_replicas(const Node& sync, const std::string& path);  // any rule is a ReplicaStrategy
bool has_shards(const Node& sync, const std::string& path);    // any rule is a ShardStrategy

}  // namespace lmx
