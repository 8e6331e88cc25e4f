// The form of `sync:` and of rules in `optimizer:`: named rules {params: pattern, KEY: component, ...}, of which the
// first that matches a parameter applies to it.
#pragma once

#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/parameters.h"

namespace lmx {

struct ParamRule {
  std::string name, path;  // "tables", "sync.tables"
  ParamPattern params;
  std::string component;
  Node config;  // of the component: the rule without `params` and KEY, and with the component as `name`
};

// The differences between the parts of a recipe that have rules.
struct RuleForm {
  const char* key;      // that names the component: "strategy"
  const char* example;  // of a rule: "{params: \".*\", strategy: allreduce}"
};

// UserError: no rules, a name that is no identifier, a rule without `params` or KEY.
std::vector<ParamRule> read_param_rules(const Node& part, const std::string& path, const RuleForm& form);
// The parameters of each rule. UserError: a parameter without a rule, a rule without parameters.
std::vector<std::vector<ParameterSpec>> params_of_rules(const std::vector<ParamRule>& rules,
                                                        const std::vector<ParameterSpec>& params,
                                                        const std::string& path, const RuleForm& form);
// A rule with all defaults, as config.yaml records it. `full`: the config of its component.
Node full_rule(const ParamRule& rule, Node full, const RuleForm& form);

}  // namespace lmx
