// `sync:` of a recipe: assigns parameters to strategies.
#include "recipe/sync_rules.h"

#include <algorithm>
#include <map>
#include <utility>

#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/sync.h"
#include "nn/state_dict.h"

namespace lmx {

namespace {

struct Rule {
  std::string name, path;
  ParamPattern params;
  std::string strategy;
  Node config;  // config of the strategy: the rule without its params, and with `strategy` as `name`
};

std::string text_of(const Node& rule, const char* key, const std::string& path) {
  const Node* node = rule.find(key);
  if (!node || node->kind != Node::Kind::scalar)
    throw UserError(str(config::at(node ? node->mark : rule.mark, path), "a rule needs `", key,
                        "`, a text: {params: \".*\", strategy: allreduce}"));
  return node->text;
}

// Names become parts of record keys and of a checkpoint's tensor names.
void check_name(const std::string& name, const Node& rule, const std::string& path) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto part = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  if (!name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), part)) return;
  throw UserError(str(config::at(config::key_place(rule), path), "'", name,
                      "' is no name of a rule; a name has letters, digits and _, and begins with no digit"));
}

std::vector<Rule> read_rules(const Node& sync, const std::string& path) {
  if (sync.kind != Node::Kind::map || sync.entries.empty())
    throw UserError(str(config::at(sync.mark, path),
                        "expected rules by name, such as {rest: {params: \".*\", strategy: allreduce}}"));
  std::vector<Rule> rules;
  for (const auto& [name, node] : sync.entries) {
    check_name(name, node, path);
    const std::string rule_path = config::join_path(path, name);
    if (node.kind != Node::Kind::map)
      throw UserError(
          str(config::at(node.mark, rule_path), "expected a rule, such as {params: \".*\", strategy: allreduce}"));
    if (const Node* wrong = node.find("name"))
      throw UserError(
          str(config::at(config::key_place(*wrong)), "unknown key ", rule_path, ".name (did you mean 'strategy'?)"));
    const std::string params = text_of(node, "params", rule_path), strategy = text_of(node, "strategy", rule_path);
    const std::string place = "[sync] " + config::at(node.find("params")->mark, rule_path + ".params");
    Rule rule{name, rule_path, ParamPattern(params, place), strategy, node};
    const Mark mark = node.find("strategy")->mark;
    rule.config.erase("params");
    rule.config.erase("strategy");
    rule.config.set("name", Node::string(rule.strategy, mark));
    rules.push_back(std::move(rule));
  }
  return rules;
}

// Checks that all rules have the same clock: all of them synchronous, or all asynchronous with equal settings.
void check_clock(const Rule& rule, const std::string& clock, const Rule& first, const std::string& expected) {
  if (clock == expected) return;
  if (clock.empty() || expected.empty())
    throw UserError(
        str(config::at(rule.config.mark, rule.path), "strategy ", (clock.empty() ? first : rule).strategy,
            " is asynchronous and strategy ", (clock.empty() ? rule : first).strategy,
            " is not: ranks cannot both go at their own pace and sum every step's gradients with the others. "
            "Give all parameters to asynchronous rules, or none"));
  throw UserError(str(config::at(rule.config.mark, rule.path), "a worker has one clock for all rules, but here it is ",
                      clock, ", and in ", first.path, ' ', expected));
}

// Names the rules that match the parameters of a rule without parameters, and a way to correct the recipe.
std::string taken_by(const Rule& rule, const std::vector<const Rule*>& takers) {
  std::vector<std::string> names;
  bool inherited = false;
  for (const Rule* taker : takers) {
    const std::string name = str(taker->path, " (", to_string(taker->config.mark), ")");
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    inherited |= taker->config.mark.file != rule.config.mark.file;
  }
  const std::string who = str(" that an earlier rule left: ", config::join(names), " took them");
  if (!inherited) return str(who, "; the rule for fewer parameters goes first");
  return str(
      who,
      ", and inherited rules come before the recipe's own rules. Choose a group with the rules that you want "
      "(sync=NAME), or remove the inherited rules with `- override sync: null` in the defaults list or '~sync' on "
      "the command line, and give all rules");
}

// Explains a rule for softmax.weight if the output layer's table is tied: it then has the name of the model's
// parameter.
std::string tied_table(const Rule& rule, const std::vector<ParameterSpec>& params,
                       const std::map<std::string, const Rule*>& takers) {
  const auto tied = std::find_if(params.begin(), params.end(), [](const ParameterSpec& spec) { return spec.output; });
  if (tied == params.end() || tied->name.starts_with("softmax.") || !rule.params.matches("softmax.weight")) return "";
  const auto taker = takers.find(tied->name);
  const std::string why = str(": the output layer's table is ", tied->name, " (tied)");
  if (taker == takers.end()) return str(why, "; write params: '^", tied->name, "'");
  return str(why, ", which ", taker->second->path, " covers; leave this rule out (~", rule.path, ") and give ",
             taker->second->path, " its strategy if that is wanted");
}

[[noreturn]] void fail_empty(const Rule& rule, const std::vector<ParameterSpec>& params,
                             const std::map<std::string, const Rule*>& takers) {
  std::vector<const Rule*> took;
  for (const ParameterSpec& spec : params)
    if (rule.params.matches(spec.name)) took.push_back(takers.at(spec.name));
  const std::string start = str(rule.params.place(), "'", rule.params.text(), "' matches no parameter");
  if (!took.empty()) throw UserError(start + taken_by(rule, took));
  throw UserError(str(start, tied_table(rule, params, takers), "; there are: ", config::join(train::names_of(params))));
}

}  // namespace

std::unique_ptr<Exchanger> make_exchanger(const Node& sync, const std::string& path, const SyncEnv& all) {
  std::vector<BoundRule> bound;
  std::vector<ParameterSpec> left = all.params;
  std::map<std::string, const Rule*> takers;  // by parameter: the rule that matched it
  const std::vector<Rule> rules = read_rules(sync, path);
  for (const Rule& rule : rules) {
    SyncEnv env{rule.name, {}, all.rank, all.ranks, all.key.fold(rule.name), all.ranks_per_node};
    std::vector<ParameterSpec> others;
    for (const ParameterSpec& spec : left) (rule.params.matches(spec.name) ? env.params : others).push_back(spec);
    if (env.params.empty()) fail_empty(rule, all.params, takers);
    for (const ParameterSpec& spec : env.params) takers[spec.name] = &rule;
    left = std::move(others);
    std::erase_if(env.params, [](const ParameterSpec& spec) { return spec.frozen; });
    if (env.params.empty()) continue;  // all parameters of the rule are frozen: there is nothing to exchange
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, rule.config, rule.path);
    bound.push_back({rule.name, env.params, &plugin, create<SyncFactory>(plugin, rule.config, rule.path, env)});
  }
  if (!left.empty())
    throw UserError(str("[sync] no rule of ", path, " covers ", config::join(train::names_of(left)),
                        "; end with {rest: {params: \".*\", strategy: allreduce}}"));
  return std::make_unique<Exchanger>(std::move(bound), all.params, all.ranks, path);
}

Node full_sync_config(const Node& sync, const std::string& path) {
  Node all = Node::map(sync.mark);
  const std::vector<Rule> rules = read_rules(sync, path);
  std::string expected;
  for (const Rule& rule : rules) {
    Node full = full_component(PluginKind::sync, rule.config, rule.path);
    const std::string clock = trait_of(PluginKind::sync, rule.config, rule.path, trait::kWorkerClock);
    if (&rule == &rules.front()) expected = clock;
    check_clock(rule, clock, rules.front(), expected);
    Node& out = all.set(rule.name, Node::map());
    out.set("params", Node::string(rule.params.text()));
    out.set("strategy", Node::string(rule.strategy));
    for (auto& [key, value] : full.entries)
      if (key != "name") out.set(key, std::move(value));
  }
  return all;
}

bool is_asynchronous(const Node& sync, const std::string& path) {
  for (const Rule& rule : read_rules(sync, path)) {
    return !trait_of(PluginKind::sync, rule.config, rule.path, trait::kWorkerClock).empty();
  }
  return false;
}

}  // namespace lmx
