// `sync:` of a recipe: assigns parameters to strategies.
#include "recipe/sync_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/sync.h"
#include "recipe/param_rules.h"

namespace lmx {

namespace {

constexpr RuleForm kSyncForm{"strategy", "{params: \".*\", strategy: allreduce}"};

// Checks that all rules have the same clock: all of them synchronous, or all asynchronous with equal settings.
void check_clock(const ParamRule& rule, const std::string& clock, const ParamRule& first, const std::string& expected) {
  if (clock == expected) return;
  if (clock.empty() || expected.empty())
    throw UserError(
        str(config::at(rule.config.mark, rule.path), "strategy ", (clock.empty() ? first : rule).component,
            " is asynchronous and strategy ", (clock.empty() ? rule : first).component,
            " is not: ranks cannot both go at their own pace and sum every step's gradients with the others. "
            "Give all parameters to asynchronous rules, or none"));
  throw UserError(str(config::at(rule.config.mark, rule.path), "a worker has one clock for all rules, but here it is ",
                      clock, ", and in ", first.path, ' ', expected));
}

bool any_has(const Node& sync, const std::string& path, const char* trait) {
  const std::vector<ParamRule> rules = read_param_rules(sync, path, kSyncForm);
  return std::any_of(rules.begin(), rules.end(), [&](const ParamRule& rule) {
    return !trait_of(PluginKind::sync, rule.config, rule.path, trait).empty();
  });
}

// Rows of a table that a step does not use have no gradient. An owner updates all elements of its part, and a rule
// whose result is an update has moments of all elements.
void check_dense(const ParamRule& rule, SyncRule& made, const std::vector<ParameterSpec>& params) {
  if (!made.shard() && made.result() != SyncResult::update) return;
  for (const ParameterSpec& spec : params)
    if (spec.sparse)
      throw UserError(str(config::at(rule.config.mark, rule.path), "the gradient of '", spec.name,
                          "' has rows of the table that a step uses only, and strategy ", rule.component,
                          made.shard() ? " divides whole gradients among ranks" : " has moments of whole gradients",
                          "; give such tables to another rule before this one, as with sync=unique "
                          "sync.rest.strategy=",
                          rule.component));
}

}  // namespace

std::unique_ptr<SyncRule> make_sync_rule(const PluginInfo& plugin, const Node& config, const std::string& path,
                                         const SyncEnv& env) {
  std::unique_ptr<SyncRule> made = create<SyncFactory>(plugin, config, path, env);
  const Traits traits = plugin.descriptor->traits(config, path);
  const auto check = [&](bool is, const char* base, const char* trait, const char* constant) {
    if (traits.contains(trait) != is)
      throw UserError(str("[plugin] ", plugin.path, ": strategy ", plugin.name, is ? " is a " : " is no ", base,
                          ", so the traits() of its config must ", is ? "" : "not ", "contain lmx::trait::", constant,
                          " (lmx/config.h)"));
  };
  check(made->replica(), "ReplicaStrategy", trait::kReplicas, "kReplicas");
  check(made->shard(), "ShardStrategy", trait::kShards, "kShards");
  check(made->server(), "ServerStrategy", trait::kWorkerClock, "kWorkerClock");
  return made;
}

std::unique_ptr<Exchanger> make_exchanger(const Node& sync, const std::string& path, const SyncEnv& all) {
  const std::vector<ParamRule> rules = read_param_rules(sync, path, kSyncForm);
  const std::vector<std::vector<ParameterSpec>> assigned = params_of_rules(rules, all.params, path, kSyncForm);
  std::vector<BoundRule> bound;
  for (size_t r = 0; r < rules.size(); ++r) {
    const ParamRule& rule = rules[r];
    SyncEnv env{rule.name, assigned[r], all.rank, all.ranks, all.key.fold(rule.name), all.ranks_per_node};
    std::erase_if(env.params, [](const ParameterSpec& spec) { return spec.frozen; });
    if (env.params.empty()) continue;  // all parameters of the rule are frozen: there is nothing to exchange
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, rule.config, rule.path);
    bound.push_back({rule.name, env.params, &plugin, make_sync_rule(plugin, rule.config, rule.path, env)});
    check_dense(rule, *bound.back().rule, env.params);
  }
  return std::make_unique<Exchanger>(std::move(bound), all.params, all.ranks, path);
}

Node full_sync_config(const Node& sync, const std::string& path) {
  Node all = Node::map(sync.mark);
  const std::vector<ParamRule> rules = read_param_rules(sync, path, kSyncForm);
  std::string expected;
  for (const ParamRule& rule : rules) {
    Node full = full_component(PluginKind::sync, rule.config, rule.path);
    const std::string clock = trait_of(PluginKind::sync, rule.config, rule.path, trait::kWorkerClock);
    if (&rule == &rules.front()) expected = clock;
    check_clock(rule, clock, rules.front(), expected);
    all.set(rule.name, full_rule(rule, std::move(full), kSyncForm));
  }
  return all;
}

bool is_asynchronous(const Node& sync, const std::string& path) {
  return any_has(sync, path, trait::kWorkerClock);
}

bool has_replicas(const Node& sync, const std::string& path) {
  return any_has(sync, path, trait::kReplicas);
}

bool has_shards(const Node& sync, const std::string& path) {
  return any_has(sync, path, trait::kShards);
}

}  // namespace lmx
