// `sync:` of a recipe: assigns parameters to strategies.
#include "recipe/sync_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "backend/counting/device.h"
#include "base/clock.h"
#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/param_server.h"
#include "lmx/plugin.h"
#include "lmx/sync.h"
#include "nn/state_dict.h"
#include "sync/unit_queue.h"

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

// The strategy of a rule, and its plugin for error messages.
struct Named {
  std::string first;
  std::unique_ptr<SyncRule> second;
  const PluginInfo* plugin;

  template <class Body>
  auto call(const char* function, Body&& body) const {
    return in_plugin(*plugin, function, [&] { return body(*second); });
  }
};

// A rank samples one set of candidates in a step, so only one rule may set the key.
void check_candidate_keys(const std::vector<Named>& strategies, const std::string& path) {
  const Named* first = nullptr;
  for (const Named& rule : strategies) {
    if (rule.second->candidate_key() == CandidateKey::left) continue;
    if (first)
      throw UserError(
          str("[sync] ", path, '.', first->first, " and ", path, '.', rule.first,
              " both set which ranks sample the same softmax candidates, and a rank samples them once in a step; "
              "change the strategy or the options of one of them, so that it leaves the candidates to the other"));
    first = &rule;
  }
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

struct SyncRules::Impl {
  struct Unit {
    SyncStrategy* strategy;
    const PluginInfo* plugin;
    std::string rule;
    std::vector<std::string> names;
    size_t missing = 0;  // gradients of this step that are not complete yet
    train::UnitQueue::Moment ready = {};
  };

  struct Travel {
    UnitBytes bytes;
    double cpu = 0;
  };

  void add_units(const Named& rule, const std::vector<ParameterSpec>& specs);
  void order_units(const std::vector<ParameterSpec>& all);
  void post_ready();

  std::vector<Named> strategies;  // in the recipe's order
  std::map<std::string, SyncRule*> by_param;
  std::vector<ServerStrategy*> servers;
  std::vector<Unit> units;
  std::map<std::string, size_t> unit_of;
  size_t next = 0;  // the first unit that has not been posted in this step
  int ranks = 1, ranks_per_node = 1;
  std::string path;  // of `sync` in the recipe
  Context ctx;       // of the step, for units
  ParameterStore* params = nullptr;
  std::vector<Travel> travels;  // of this step, in the order of units
  std::unique_ptr<train::UnitQueue> queue;

  std::vector<Tensor> gradients(const Unit& unit) const;
  void travel(size_t i);
};

// Backward finishes parameters in about the reverse order of their declaration.
void SyncRules::Impl::add_units(const Named& rule, const std::vector<ParameterSpec>& specs) {
  std::set<std::string> left;
  for (const ParameterSpec& spec : specs) left.insert(spec.name);
  LMX_CHECK(rule.second->strategy(), "rule ", rule.first, " is neither a SyncStrategy nor a ServerStrategy");
  SyncStrategy& strategy = *rule.second->strategy();
  const auto found = in_plugin(*rule.plugin, "units()", [&] { return strategy.units({specs.rbegin(), specs.rend()}); });
  for (const std::vector<std::string>& names : found) {
    for (const std::string& name : names)
      LMX_CHECK(left.erase(name) == 1, "a strategy's units hold '", name, "', not its own or twice");
    units.push_back({&strategy, rule.plugin, rule.first, names});
  }
  LMX_CHECK(left.empty(), "a strategy's units leave out '", *left.begin(), "'");
}

// Sorts the units of all rules by their parameter that backward finishes last.
void SyncRules::Impl::order_units(const std::vector<ParameterSpec>& all) {
  std::map<std::string, size_t> finished;
  for (size_t i = 0; i < all.size(); ++i) finished[all[i].name] = all.size() - i;
  const auto last = [&](const Unit& u) {
    size_t at = 0;
    for (const std::string& name : u.names) at = std::max(at, finished.at(name));
    return at;
  };
  std::stable_sort(units.begin(), units.end(), [&](const Unit& a, const Unit& b) { return last(a) < last(b); });
  for (size_t i = 0; i < units.size(); ++i)
    for (const std::string& name : units[i].names) unit_of[name] = i;
}

void SyncRules::Impl::post_ready() {
  for (; next < units.size() && units[next].missing == 0; ++next) {
    Unit& unit = units[next];
    queue->post(
        std::move(unit.ready), [this, i = next] { travel(i); }, gradients(unit));
  }
}

std::vector<Tensor> SyncRules::Impl::gradients(const Unit& unit) const {
  std::vector<Tensor> all;
  for (const std::string& name : unit.names) {
    const Gradient& grad = params->at(name).grad();
    if (grad.dense.defined()) all.push_back(grad.dense);
    for (const RowSparse& piece : grad.pieces) all.push_back(piece.rows);
  }
  return all;
}

void SyncRules::Impl::travel(size_t i) {
  const Span span(ctx.tracer, "sync");
  Travel& travelled = travels[i];
  const double cpu = thread_cpu_s();
  Context own = ctx;
  use_stream_of_thread(own);
  std::vector<Var> vars;
  for (const std::string& name : units[i].names) vars.push_back(params->at(name));
  const size_t entered = ctx.comm->ledger().size();
  const StepRecord* const record = step_record(ctx);
  const int64_t allocated = record ? record->allocated_outside() : 0;
  in_plugin(*units[i].plugin, "reduce()", [&] { units[i].strategy->reduce(own, vars); });
  for (size_t e = entered; e < ctx.comm->ledger().size(); ++e) travelled.bytes.add(ctx.comm->ledger()[e]);
  // The rank reads what it sends and receives. Each other byte that it allocates is written once and read once.
  if (record) {
    UnitBytes& b = travelled.bytes;
    b.moved = b.sent + b.received + 2 * std::max<int64_t>(0, record->allocated_outside() - allocated - b.received);
  }
  travelled.cpu = thread_cpu_s() - cpu;
}

SyncRules::SyncRules(const Node& sync, const std::string& path, const SyncEnv& all) : impl_(std::make_unique<Impl>()) {
  const std::vector<ParameterSpec>& params = all.params;
  impl_->ranks = all.ranks;
  impl_->ranks_per_node = all.ranks_per_node;
  impl_->path = path;
  std::vector<ParameterSpec> left = params;
  std::map<std::string, const Rule*> takers;  // by parameter: the rule that matched it
  const std::vector<Rule> rules = read_rules(sync, path);
  for (const Rule& rule : rules) {
    SyncEnv env{rule.name, {}, all.rank, all.ranks, all.key.fold(rule.name), all.ranks_per_node};
    std::vector<ParameterSpec> others;
    for (const ParameterSpec& spec : left) (rule.params.matches(spec.name) ? env.params : others).push_back(spec);
    if (env.params.empty()) fail_empty(rule, params, takers);
    for (const ParameterSpec& spec : env.params) takers[spec.name] = &rule;
    std::erase_if(env.params, [](const ParameterSpec& spec) { return spec.frozen; });
    if (env.params.empty()) {  // all parameters of the rule are frozen: there is nothing to exchange
      left = std::move(others);
      continue;
    }
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, rule.config, rule.path);
    Named& named = impl_->strategies.emplace_back(
        Named{rule.name, create<SyncFactory>(plugin, rule.config, rule.path, env), &plugin});
    for (const ParameterSpec& spec : env.params) impl_->by_param[spec.name] = named.second.get();
    if (ServerStrategy* server = named.second->server())
      impl_->servers.push_back(server);
    else
      impl_->add_units(named, env.params);
    left = std::move(others);
  }
  check_candidate_keys(impl_->strategies, path);
  if (!left.empty())
    throw UserError(str("[sync] no rule of ", path, " covers ", config::join(train::names_of(left)),
                        "; end with {rest: {params: \".*\", strategy: allreduce}}"));
  impl_->order_units(params);
}

SyncRules::~SyncRules() = default;

void SyncRules::begin_step(Context& ctx, ParameterStore& params, std::span<const Batch> share, StepPlan& plan) {
  if (!impl_->queue && impl_->servers.empty())
    impl_->queue = std::make_unique<train::UnitQueue>(ctx.comm->overlaps(), ctx.device);
  for (const Named& rule : impl_->strategies)
    rule.call("begin_step()", [&](SyncRule& s) { s.begin_step(ctx, share, plan); });
  impl_->ctx = ctx;
  impl_->ctx.tape = nullptr;
  impl_->params = &params;
  impl_->next = 0;
  if (impl_->queue) impl_->queue->begin_step();
  impl_->travels.assign(impl_->units.size(), {});
  for (Impl::Unit& unit : impl_->units) unit.missing = unit.names.size();
}

void SyncRules::grad_ready(const Var& param) {
  Impl::Unit& unit = impl_->units[impl_->unit_of.at(param.name())];
  LMX_CHECK(unit.missing > 0, "the gradient of '", param.name(), "' is complete twice");
  if (--unit.missing == 0) unit.ready = impl_->queue->now();
  impl_->post_ready();
}

void SyncRules::finish() {
  for (Impl::Unit& unit : impl_->units)
    if (std::exchange(unit.missing, 0) > 0) unit.ready = impl_->queue->now();
  impl_->post_ready();
  impl_->queue->drain();
}

void SyncRules::after_step(Context& ctx) {
  for (const Named& rule : impl_->strategies) rule.call("after_step()", [&](SyncRule& s) { s.after_step(ctx); });
}

void SyncRules::discard() {
  for (const Named& rule : impl_->strategies) rule.call("discard()", [](SyncRule& s) { s.discard(); });
}

void SyncRules::rescale(double factor) {
  for (const Named& rule : impl_->strategies) rule.call("rescale()", [&](SyncRule& s) { s.rescale(factor); });
}

RandomKey SyncRules::candidate_key(int rank, int64_t step, RandomKey otherwise) const {
  Context ctx;
  ctx.rank = rank;
  ctx.ranks = impl_->ranks;
  StepPlan plan{.step = step, .sampler_key = otherwise};
  for (const Named& rule : impl_->strategies)
    if (rule.second->candidate_key() == CandidateKey::needed)
      rule.call("begin_step()", [&](SyncRule& s) { s.begin_step(ctx, {}, plan); });
  return plan.sampler_key;
}

StateDict SyncRules::state() const {
  StateDict all;
  for (const Named& rule : impl_->strategies)
    train::add_with_prefix(all, rule.first + "/", rule.call("state()", [](SyncRule& s) { return s.state(); }));
  return all;
}

void SyncRules::load(Context& ctx, const std::vector<StateDict>& ranks) {
  for (const Named& rule : impl_->strategies) {
    std::vector<StateDict> own;
    for (const StateDict& rank : ranks) own.push_back(train::with_prefix(rank, rule.first + "/"));
    rule.call("load()", [&](SyncRule& s) { s.load(ctx, own); });
  }
}

std::vector<UnitTime> SyncRules::timeline() const {
  std::vector<UnitTime> units;
  for (size_t i = 0; i < impl_->travels.size(); ++i)
    units.push_back({.rule = impl_->units[i].rule,
                     .params = impl_->units[i].names,
                     .bytes = impl_->travels[i].bytes,
                     .cpu = impl_->travels[i].cpu});
  if (!impl_->queue) return units;
  const std::vector<train::UnitQueue::JobTime> times = impl_->queue->job_times();
  for (size_t i = 0; i < std::min(units.size(), times.size()); ++i)
    units[i].ready = times[i].ready, units[i].begin = times[i].begin, units[i].end = times[i].end;
  return units;
}

CommTimes SyncRules::take_times() {
  return impl_->queue ? impl_->queue->take_times() : CommTimes{};
}

std::map<std::string, CodecHealth> SyncRules::take_health() {
  std::map<std::string, CodecHealth> all;
  for (const Named& rule : impl_->strategies) all.merge(rule.second->take_health());
  return all;
}

std::vector<std::pair<std::string, double>> SyncRules::take_values() {
  std::vector<std::pair<std::string, double>> all;
  for (const auto& [name, s, plugin] : impl_->strategies)
    for (const auto& [key, value] : s->take_values()) all.emplace_back(str(name, '/', key), value);
  return all;
}

std::vector<std::string> SyncRules::describe(int ranks) const {
  std::vector<std::string> lines;
  for (const auto& [name, s, plugin] : impl_->strategies)
    if (const std::string text = s->describe(ranks); !text.empty()) lines.push_back(str("sync.", name, ": ", text));
  return lines;
}

std::vector<std::string> SyncRules::summary() const {
  std::vector<std::string> lines;
  for (const auto& [name, s, plugin] : impl_->strategies)
    if (const std::string text = s->summary(); !text.empty()) lines.push_back(str("sync.", name, ": ", text));
  return lines;
}

std::vector<std::string> SyncRules::warnings(bool loss_scaled) const {
  std::vector<std::string> all;
  for (const auto& [name, s, plugin] : impl_->strategies)
    for (std::string& line : s->warnings(loss_scaled)) all.push_back(std::move(line));
  return all;
}

void SyncRules::check_loss(const Loss& loss) const {
  for (const ParameterSpec& spec : loss.parameters()) {
    const auto serving = impl_->by_param.find(spec.name);
    for (const auto& [name, s, plugin] : impl_->strategies)
      if (serving != impl_->by_param.end() && serving->second == s.get() && s->plans_rows(spec.name))
        loss.check_planned(str(impl_->path, '.', name));
  }
  if (loss.draws_candidates()) return;
  for (const auto& [name, s, plugin] : impl_->strategies)
    if (s->candidate_key() == CandidateKey::needed)
      throw UserError(str(
          "[sync] sync.", name,
          ": groups of ranks are to sample a softmax's candidates with one seed, but this loss samples none; "
          "choose a loss that samples (sampled_softmax, two_stage_softmax), or a strategy that needs no candidates"));
}

const std::vector<ServerStrategy*>& SyncRules::servers() const {
  return impl_->servers;
}

Node SyncRules::full_config(const Node& sync, const std::string& path) {
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

bool SyncRules::asynchronous(const Node& sync, const std::string& path) {
  for (const Rule& rule : read_rules(sync, path)) {
    return !trait_of(PluginKind::sync, rule.config, rule.path, trait::kWorkerClock).empty();
  }
  return false;
}

}  // namespace lmx
