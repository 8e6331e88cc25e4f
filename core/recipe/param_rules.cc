#include "recipe/param_rules.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "config/messages.h"
#include "lmx/error.h"
#include "nn/state_dict.h"

namespace lmx {
namespace {

// By parameter: the rule that applies to it.
using Takers = std::map<std::string, const ParamRule*>;

std::string text_of(const Node& rule, const char* key, const std::string& path, const RuleForm& form) {
  const Node* node = rule.find(key);
  if (!node || node->kind != Node::Kind::scalar)
    throw UserError(str(config::Place{rule, path}(key), "a rule needs `", key, "`, a text: ", form.example));
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

ParamRule read_rule(const std::string& name, const Node& node, const std::string& path, const RuleForm& form) {
  check_name(name, node, path);
  const std::string rule_path = config::join_path(path, name);
  if (node.kind != Node::Kind::map)
    throw UserError(str(config::at(node.mark, rule_path), "expected a rule, such as ", form.example,
                        ", because other keys of ", path, " are rules; ~", rule_path, " leaves this key out"));
  if (const Node* wrong = node.find("name"); wrong && std::string_view(form.key) != "name")
    throw UserError(str(config::at(config::key_place(*wrong)), "unknown key ", rule_path, ".name (did you mean '",
                        form.key, "'?)"));
  const std::string params = text_of(node, "params", rule_path, form),
                    component = text_of(node, form.key, rule_path, form);
  const std::string place = str("[", path, "] ", config::at(node.find("params")->mark, rule_path + ".params"));
  ParamRule rule{name, rule_path, ParamPattern(params, place), component, node};
  const Mark mark = node.find(form.key)->mark;
  rule.config.erase("params");
  rule.config.erase(form.key);
  rule.config.set("name", Node::string(rule.component, mark));
  return rule;
}

// Names the rules that match the parameters of a rule without parameters, and a way to correct the recipe.
std::string taken_by(const ParamRule& rule, const std::vector<const ParamRule*>& takers, const std::string& path) {
  std::vector<std::string> names;
  bool inherited = false;
  for (const ParamRule* taker : takers) {
    const std::string name = str(taker->path, " (", to_string(taker->config.mark), ")");
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    inherited |= taker->config.mark.file != rule.config.mark.file;
  }
  const std::string who = str(" that an earlier rule left: ", config::join(names), " took them");
  if (!inherited) return str(who, "; the rule for fewer parameters goes first");
  return str(who,
             ", and inherited rules come before the recipe's own rules. Choose a group with the rules that you want "
             "(",
             path, "=NAME), or remove the inherited rules with `- override ", path,
             ": null` in the defaults list or '~", path, "' on the command line, and give all rules");
}

// Explains a rule for softmax.weight if the output layer's table is tied: it then has the name of the model's
// parameter.
std::string tied_table(const ParamRule& rule, const std::vector<ParameterSpec>& params, const Takers& takers,
                       const RuleForm& form) {
  const auto tied = std::find_if(params.begin(), params.end(), [](const ParameterSpec& spec) { return spec.output; });
  if (tied == params.end() || tied->name.starts_with("softmax.") || !rule.params.matches("softmax.weight")) return "";
  const auto taker = takers.find(tied->name);
  const std::string why = str(": the output layer's table is ", tied->name, " (tied)");
  if (taker == takers.end()) return str(why, "; write params: '^", tied->name, "'");
  return str(why, ", which ", taker->second->path, " covers; leave this rule out (~", rule.path, ") and give ",
             taker->second->path, " its ", form.key, " if that is wanted");
}

[[noreturn]] void fail_empty(const ParamRule& rule, const std::vector<ParameterSpec>& params, const Takers& takers,
                             const std::string& path, const RuleForm& form) {
  std::vector<const ParamRule*> took;
  for (const ParameterSpec& spec : params)
    if (rule.params.matches(spec.name)) took.push_back(takers.at(spec.name));
  const std::string start = str(rule.params.place(), "'", rule.params.text(), "' matches no parameter");
  if (!took.empty()) throw UserError(start + taken_by(rule, took, path));
  throw UserError(str(start, tied_table(rule, params, takers, form), "; there are: ", config::join(names_of(params))));
}

}  // namespace

std::vector<ParamRule> read_param_rules(const Node& part, const std::string& path, const RuleForm& form) {
  if (part.kind != Node::Kind::map || part.entries.empty())
    throw UserError(str(config::at(part.mark, path), "expected rules by name, such as {rest: ", form.example, "}"));
  std::vector<ParamRule> rules;
  for (const auto& [name, node] : part.entries) rules.push_back(read_rule(name, node, path, form));
  return rules;
}

std::vector<std::vector<ParameterSpec>> params_of_rules(const std::vector<ParamRule>& rules,
                                                        const std::vector<ParameterSpec>& params,
                                                        const std::string& path, const RuleForm& form) {
  std::vector<std::vector<ParameterSpec>> all;
  Takers takers;
  for (const ParamRule& rule : rules) {
    std::vector<ParameterSpec>& own = all.emplace_back();
    for (const ParameterSpec& spec : params)
      if (!takers.contains(spec.name) && rule.params.matches(spec.name)) own.push_back(spec);
    if (own.empty()) fail_empty(rule, params, takers, path, form);
    for (const ParameterSpec& spec : own) takers[spec.name] = &rule;
  }
  std::vector<std::string> left;
  for (const ParameterSpec& spec : params)
    if (!takers.contains(spec.name)) left.push_back(spec.name);
  if (!left.empty())
    throw UserError(
        str("[", path, "] no rule of ", path, " covers ", config::join(left), "; end with {rest: ", form.example, "}"));
  return all;
}

Node full_rule(const ParamRule& rule, Node full, const RuleForm& form) {
  Node out = Node::map(rule.config.mark);
  out.set("params", Node::string(rule.params.text()));
  out.set(form.key, Node::string(rule.component));
  for (auto& [key, value] : full.entries)
    if (key != "name") out.set(key, std::move(value));
  return out;
}

}  // namespace lmx
