// `sync:` of a recipe: which strategy serves which parameters.
#include <map>
#include <regex>

#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/sync.h"

namespace lmx {

SyncStrategy::~SyncStrategy() = default;

namespace {

struct Rule {
  std::string name, path;
  std::string params, strategy;
  Node config;  // what the strategy reads: the rule without its params, `strategy` as `name`
};

std::string text_of(const Node& rule, const char* key, const std::string& path) {
  const Node* node = rule.find(key);
  if (!node || node->kind != Node::Kind::scalar)
    throw UserError(str(config::at(node ? node->mark : rule.mark, path), "a rule needs `", key,
                        "`, a text: {params: \".*\", strategy: allreduce}"));
  return node->text;
}

std::vector<Rule> read_rules(const Node& sync, const std::string& path) {
  if (sync.kind != Node::Kind::map || sync.entries.empty())
    throw UserError(str(config::at(sync.mark, path),
                        "expected rules by name, such as {rest: {params: \".*\", strategy: allreduce}}"));
  std::vector<Rule> rules;
  for (const auto& [name, node] : sync.entries) {
    Rule rule{name, config::join_path(path, name), {}, {}, node};
    if (node.kind != Node::Kind::map)
      throw UserError(
          str(config::at(node.mark, rule.path), "expected a rule, such as {params: \".*\", strategy: allreduce}"));
    if (const Node* wrong = node.find("name"))
      throw UserError(str(config::at(wrong->mark), "unknown key ", rule.path, ".name (did you mean 'strategy'?)"));
    rule.params = text_of(node, "params", rule.path);
    rule.strategy = text_of(node, "strategy", rule.path);
    const Mark mark = node.find("strategy")->mark;
    rule.config.erase("params");
    rule.config.erase("strategy");
    rule.config.set("name", Node::string(rule.strategy, mark));
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::regex pattern_of(const Rule& rule) {
  try {
    return std::regex(rule.params);
  } catch (const std::regex_error& e) {
    throw UserError(str("[sync] ", rule.path, ".params: '", rule.params, "' is no regular expression: ", e.what()));
  }
}

std::string list_of(const std::vector<std::string>& names) {
  return config::join(names);
}

}  // namespace

struct SyncRules::Impl {
  std::vector<std::pair<std::string, std::unique_ptr<SyncStrategy>>> strategies;  // by rule name, in recipe order
  std::map<std::string, SyncStrategy*> by_param;
};

SyncRules::SyncRules(const Node& sync, const std::string& path, const std::vector<std::string>& params)
    : impl_(std::make_unique<Impl>()) {
  std::vector<std::string> left = params;
  for (const Rule& rule : read_rules(sync, path)) {
    const std::regex pattern = pattern_of(rule);
    SyncEnv env{rule.name, {}};
    std::vector<std::string> others;
    for (const std::string& name : left) (std::regex_search(name, pattern) ? env.params : others).push_back(name);
    if (env.params.empty())
      throw UserError(
          str("[sync] ", rule.path, ".params: '", rule.params,
              "' matches no parameter that an earlier rule left; left are: ", left.empty() ? "none" : list_of(left)));
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, rule.config, rule.path);
    auto strategy = create<SyncFactory>(plugin, rule.config, rule.path, env);
    for (const std::string& name : env.params) impl_->by_param[name] = strategy.get();
    impl_->strategies.emplace_back(rule.name, std::move(strategy));
    left = std::move(others);
  }
  if (!left.empty())
    throw UserError(str("[sync] no rule of ", path, " covers ", list_of(left),
                        "; end with {rest: {params: \".*\", strategy: allreduce}}"));
}

SyncRules::~SyncRules() = default;

void SyncRules::begin_step(Context& ctx, StepPlan& plan) {
  for (auto& [name, s] : impl_->strategies) s->begin_step(ctx, plan);
}

void SyncRules::grad_ready(Context& ctx, const Var& param) {
  impl_->by_param.at(param.name())->grad_ready(ctx, param);
}

void SyncRules::before_step(Context& ctx) {
  for (auto& [name, s] : impl_->strategies) s->before_step(ctx);
}

bool SyncRules::owns_update(const Var& param) const {
  return impl_->by_param.at(param.name())->owns_update(param);
}

void SyncRules::after_step(Context& ctx) {
  for (auto& [name, s] : impl_->strategies) s->after_step(ctx);
}

StateDict SyncRules::state() const {
  StateDict all;
  for (const auto& [name, s] : impl_->strategies)
    for (const auto& [key, t] : s->state()) all.emplace(str(name, "/", key), t);
  return all;
}

void SyncRules::load(const StateDict& state) {
  for (auto& [name, s] : impl_->strategies) {
    StateDict own;
    for (const auto& [key, t] : state)
      if (key.starts_with(name + "/")) own.emplace(key.substr(name.size() + 1), t);
    s->load(own);
  }
}

Node SyncRules::full_config(const Node& sync, const std::string& path) {
  Node all = Node::map(sync.mark);
  for (const Rule& rule : read_rules(sync, path)) {
    pattern_of(rule);
    Node full = full_component(PluginKind::sync, rule.config, rule.path);
    Node& out = all.set(rule.name, Node::map());
    out.set("params", Node::string(rule.params));
    out.set("strategy", Node::string(rule.strategy));
    for (auto& [key, value] : full.entries)
      if (key != "name") out.set(key, std::move(value));
  }
  return all;
}

}  // namespace lmx
