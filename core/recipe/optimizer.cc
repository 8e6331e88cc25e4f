// `optimizer:` of a recipe: one optimizer, or rules that assign parameters to optimizers.
#include "recipe/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/optim.h"
#include "optim/optimizers.h"
#include "optim/states.h"
#include "plugin/choice.h"
#include "recipe/choices.h"
#include "recipe/param_rules.h"

namespace lmx {
namespace {

constexpr RuleForm kForm{"name", "{params: \".*\", name: adamw}"};

Choice<OptimizerFactory> choose_optimizer(const Node& config, const std::string& path) {
  return {PluginKind::optimizer, optim::entries(), config, path, nullptr};
}

double rate_of(const Choice<OptimizerFactory>& choice) {
  const std::string text = choice.trait(trait::kLearningRate);
  const std::optional<double> rate = parse_double(text);
  if (rate && std::isfinite(*rate) && *rate >= 0) return *rate;
  throw UserError(str("[plugin] ", choice.plugin() ? choice.plugin()->path : "lmx", ": ",
                      text.empty() ? "the config states no learning rate"
                                   : str("the config states the learning rate '", text, "', no finite number from 0"),
                      "; its function traits() must return {lmx::trait::kLearningRate, lmx::trait_value(RATE)}"));
}

// The optimizer of a plugin.
class PluginOptimizer final : public Optimizer {
 public:
  PluginOptimizer(const PluginInfo& plugin, std::unique_ptr<Optimizer> own) : plugin_(plugin), own_(std::move(own)) {}

  Grain grain(const std::string& param) const override {
    return in_plugin(plugin_, "grain()", [&] { return own_->grain(param); });
  }
  bool keeps_state(const std::string& param) const override {
    return in_plugin(plugin_, "keeps_state()", [&] { return own_->keeps_state(param); });
  }
  void begin(const std::vector<ParameterSpec>& params, const std::string& where) override {
    in_plugin(plugin_, "begin()", [&] { own_->begin(params, where); });
  }
  void update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) override {
    in_plugin(plugin_, "update()", [&] { own_->update(ctx, param, lr, number, grad_scale); });
  }
  void update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number) override {
    in_plugin(plugin_, "update()", [&] { own_->update_all(ctx, updates, lr, number); });
  }
  StateDict state() const override {
    return in_plugin(plugin_, "state()", [&] { return own_->state(); });
  }
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) override {
    in_plugin(plugin_, "load()", [&] { own_->load(ctx, params, state); });
  }
  void evaluate(Context& ctx, ParameterStore& params, bool on) override {
    in_plugin(plugin_, "evaluate()", [&] { own_->evaluate(ctx, params, on); });
  }

 private:
  const PluginInfo& plugin_;
  std::unique_ptr<Optimizer> own_;
};

bool is_map(const Node& node) {
  return node.kind == Node::Kind::map;
}

// Whether a recipe gives rules instead of one optimizer. UserError: it gives both.
bool has_rules(const Node& config, const std::string& path) {
  if (!is_map(config)) return false;
  const auto rule = std::find_if(config.entries.begin(), config.entries.end(),
                                 [](const auto& entry) { return is_map(entry.second); });
  if (rule == config.entries.end()) return false;
  const Node* name = config.find("name");
  if (!name || is_map(*name)) return true;
  if (!rule->second.find("params")) return false;  // a field of the optimizer that is a map
  throw UserError(str(config::at(rule->second.mark, config::join_path(path, rule->first)),
                      "a rule, and an optimizer for all parameters at ", to_string(name->mark), " (", path, ".name: ",
                      name->text, "): a recipe gives one or the other. Remove an inherited optimizer with `- ",
                      "override ", path, ": null` in the defaults list or '~", path, "' on the command line"));
}

// An optimizer and its place in the recipe.
struct Placed {
  std::string path;
  Node config;
};
// The optimizers of all rules, or the only one.
std::vector<Placed> optimizers_of(const Node& config, const std::string& path) {
  if (!has_rules(config, path)) return {{path, config}};
  std::vector<Placed> all;
  for (const ParamRule& rule : read_param_rules(config, path, kForm)) all.push_back({rule.path, rule.config});
  return all;
}

std::vector<ParameterSpec> trained(std::vector<ParameterSpec> params) {
  std::erase_if(params, [](const ParameterSpec& spec) { return spec.frozen; });
  return params;
}

// An optimizer for each rule. Slots are named as those of one optimizer, since each parameter belongs to one rule.
class RuleOptimizer final : public Optimizer {
 public:
  RuleOptimizer(const Node& config, const std::string& path, const std::vector<ParameterSpec>& params) {
    const std::vector<ParamRule> rules = read_param_rules(config, path, kForm);
    const std::vector<RuleRate> rates = rule_rates(config, path);
    const std::vector<std::vector<ParameterSpec>> assigned = params_of_rules(rules, params, path, kForm);
    for (size_t r = 0; r < rules.size(); ++r) {
      Own& own = own_.emplace_back(Own{make_optimizer(rules[r].config, rules[r].path), rates[r].factor, {}});
      const std::vector<ParameterSpec> specs = trained(assigned[r]);
      own.optimizer->begin(specs, rules[r].params.place());
      for (const ParameterSpec& spec : assigned[r]) rule_of_[spec.name] = r;
    }
  }

  Grain grain(const std::string& param) const override { return own_[rule_of_.at(param)].optimizer->grain(param); }
  bool keeps_state(const std::string& param) const override {
    return own_[rule_of_.at(param)].optimizer->keeps_state(param);
  }
  void update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) override {
    Own& own = own_[rule_of_.at(param.name())];
    own.optimizer->update(ctx, param, lr * own.factor, number, grad_scale);
  }
  void update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number) override {
    for (Own& own : own_) own.updates.clear();
    for (const ParameterUpdate& u : updates) own_[rule_of_.at(u.param->name())].updates.push_back(u);
    for (Own& own : own_)
      if (!own.updates.empty()) own.optimizer->update_all(ctx, own.updates, lr * own.factor, number);
  }
  StateDict state() const override {
    StateDict all;
    for (const Own& own : own_) all.merge(own.optimizer->state());
    return all;
  }
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) override {
    std::vector<StateDict> parts(own_.size());
    for (const auto& [name, t] : state) parts[rule_of_slot(name)].emplace(name, t);
    for (size_t r = 0; r < own_.size(); ++r) own_[r].optimizer->load(ctx, params, parts[r]);
  }
  void evaluate(Context& ctx, ParameterStore& params, bool on) override {
    for (Own& own : own_) own.optimizer->evaluate(ctx, params, on);
  }

 private:
  struct Own {
    std::unique_ptr<Optimizer> optimizer;
    double factor;  // of the learning rate
    std::vector<ParameterUpdate> updates;
  };

  // The rule of the parameter in "<parameter>.<slot>"; the first rule, which refuses the slot, if there is none.
  size_t rule_of_slot(const std::string& slot) const {
    const std::string param = optim::param_of_slot(slot, [this](const std::string& p) { return rule_of_.contains(p); });
    return param.empty() ? 0 : rule_of_.at(param);
  }

  std::vector<Own> own_;
  std::map<std::string, size_t> rule_of_;  // by parameter
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path) {
  const Choice<OptimizerFactory> choice = choose_optimizer(config, path);
  std::unique_ptr<Optimizer> optimizer = choice.make();
  if (!choice.plugin()) return optimizer;
  return std::make_unique<PluginOptimizer>(*choice.plugin(), std::move(optimizer));
}

std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path,
                                          const std::vector<ParameterSpec>& params) {
  if (has_rules(config, path)) return std::make_unique<RuleOptimizer>(config, path, params);
  std::unique_ptr<Optimizer> optimizer = make_optimizer(config, path);
  optimizer->begin(trained(params), place_of_key(config, path, "name"));
  return optimizer;
}

Node full_optimizer_config(const Node& config, const std::string& path) {
  if (has_rules(config, path)) {
    Node all = Node::map(config.mark);
    for (const ParamRule& rule : read_param_rules(config, path, kForm))
      all.set(rule.name, full_rule(rule, full_optimizer_config(rule.config, rule.path), kForm));
    static_cast<void>(rule_rates(config, path));
    return all;
  }
  const Choice<OptimizerFactory> choice = choose_optimizer(config, path);
  Node full = choice.full();
  static_cast<void>(rate_of(choice));
  return full;
}

double learning_rate(const Node& config, const std::string& path) {
  const Placed first = optimizers_of(config, path).front();
  return rate_of(choose_optimizer(first.config, first.path));
}

std::vector<RuleRate> rule_rates(const Node& optimizer, const std::string& path) {
  if (!has_rules(optimizer, path)) return {};
  const double base = learning_rate(optimizer, path);
  std::vector<RuleRate> rates;
  for (const ParamRule& rule : read_param_rules(optimizer, path, kForm)) {
    const double rate = rate_of(choose_optimizer(rule.config, rule.path));
    if (base == 0 && rate > 0)
      throw UserError(str(config::at(rule.config.mark, rule.path), "its learning rate is ", rate, ", and that of the ",
                          "first rule, ", path, '.', rates.front().rule,
                          ", is 0: the schedule starts from the first rule's rate, of which the others are multiples"));
    rates.push_back({rule.name, base > 0 ? rate / base : 1});
  }
  return rates;
}

void check_optimizer_of_ranks(const Node& optimizer, const std::string& path, ApartRanks ranks) {
  for (const Placed& own : optimizers_of(optimizer, path)) {
    const bool averages = choose_optimizer(own.config, own.path).trait(trait::kAverages) == "true",
               servers = ranks == ApartRanks::servers;
    const std::string start = place_of_key(own.config, own.path, "name") + own.config.find("name")->text;
    if (!servers && averages)
      throw UserError(str(start, " averages the parameters for validations, and with this strategy of sync ",
                          ranks == ApartRanks::replicas
                              ? "ranks have their own values, of which there is no such average"
                              : "no rank has the whole state of the optimizer",
                          "; choose another optimizer"));
    if (!servers || (!averages && make_optimizer(own.config, own.path)->grain("") == Grain::element)) continue;
    throw UserError(str(start, averages ? " averages parameters for validations" : " updates a parameter as a whole",
                        ", and with an asynchronous rule of sync each rank has some rows of a parameter; choose an "
                        "optimizer that updates each element separately, such as adamw, or a synchronous strategy"));
  }
}

void check_averages(const Node& optimizer, const std::string& path, const Node& schedule, double ema) {
  for (const Placed& own : optimizers_of(optimizer, path)) {
    if (choose_optimizer(own.config, own.path).trait(trait::kAverages) != "true") continue;
    const std::string start = place_of_key(own.config, own.path, "name") + own.config.find("name")->text;
    const Node* name = schedule.find("name");
    if (name && name->text != "constant")
      throw UserError(str(start, " averages the parameters in place of a learning rate that decreases, so it needs ",
                          "schedule: {name: constant, warmup: N}, and schedule.name is ", name->text));
    if (ema > 0) throw UserError(str(start, " averages the parameters itself; set train.ema to 0, which is ", ema));
  }
}

}  // namespace lmx
