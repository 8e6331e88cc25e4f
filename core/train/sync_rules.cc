// `sync:` of a recipe: which strategy serves which parameters.
#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <regex>
#include <set>
#include <utility>

#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/param_server.h"
#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "lmx/sync.h"
#include "train/unit_queue.h"

namespace lmx {

SyncStrategy::~SyncStrategy() = default;
std::vector<std::vector<std::string>> SyncStrategy::units(const std::vector<ParameterSpec>& params) const {
  std::vector<std::vector<std::string>> alone;
  for (const ParameterSpec& spec : params) alone.push_back({spec.name});
  return alone;
}
void SyncStrategy::begin_step(Context&, std::span<const Batch>, StepPlan&) {}
const std::vector<int32_t>* SyncStrategy::selected_rows(const std::string&) const {
  return nullptr;
}
bool SyncStrategy::plans_rows(const std::string&) const {
  return false;
}
bool SyncStrategy::owns_update(const Var&) const {
  return false;
}
void SyncStrategy::after_step(Context&) {}
void SyncStrategy::discard() {}
void SyncStrategy::rescale(double) {}
bool SyncStrategy::replicated() const {
  return true;
}
StateDict SyncStrategy::state() const {
  return {};
}
void SyncStrategy::load(Context&, const std::vector<StateDict>& ranks) {
  for (const StateDict& state : ranks)
    if (!state.empty())
      throw UserError(
          str("[sync] the checkpoint has a state '", state.begin()->first, "', which this strategy does not keep"));
}
void SyncStrategy::plan(Traffic& unit, const ParameterSpec& spec, const TableRows& touched) const {
  const int64_t height = spec.shape[0], width = row_width(spec.shape);
  if (!spec.sparse) return unit.dense.push_back({height, width});
  const auto each = [&](int64_t n) { return std::vector<int64_t>(static_cast<size_t>(unit.ranks), n); };
  unit.sparse.push_back({height, width, each(touched.raw), each(touched.own), touched.all, {}});
}
KeptBytes SyncStrategy::kept_bytes(const Traffic& t) const {
  KeptBytes kept;
  for (const Traffic::Dense& d : t.dense)
    kept.sums += 4 * d.width * (d.owned.empty() ? d.rows : std::accumulate(d.owned.begin(), d.owned.end(), int64_t{0}));
  for (const Traffic::Sparse& s : t.sparse) kept.sums += 4 * s.union_rows * s.width;
  return kept;
}
std::string SyncStrategy::describe(int) const {
  return {};
}
std::vector<std::pair<std::string, double>> SyncStrategy::take_values() {
  return {};
}
std::string SyncStrategy::summary() const {
  return {};
}
CandidateKey SyncStrategy::candidate_key() const {
  return CandidateKey::left;
}
ServerStrategy* SyncStrategy::server() {
  return nullptr;
}
std::map<std::string, CodecHealth> SyncStrategy::take_health() {
  return {};
}

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
      throw UserError(
          str(config::at(config::key_place(*wrong)), "unknown key ", rule.path, ".name (did you mean 'strategy'?)"));
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

// How the ranks of each rule go; the same for all of them.
void check_pace(const Rule& rule, const std::string& pace, const Rule& first, const std::string& expected) {
  if (pace == expected) return;
  if (pace.empty() || expected.empty())
    throw UserError(
        str(config::at(rule.config.mark, rule.path), "strategy ", (pace.empty() ? first : rule).strategy,
            " is asynchronous and strategy ", (pace.empty() ? rule : first).strategy,
            " is not: ranks cannot both go at their own pace and sum every step's gradients with the others. "
            "Give all parameters to asynchronous rules, or none"));
  throw UserError(str(config::at(rule.config.mark, rule.path), "a worker has one clock for all rules, but here it is ",
                      pace, ", and in ", first.path, ' ', expected));
}

using Named = std::pair<std::string, std::unique_ptr<SyncStrategy>>;

// A rank draws one set of candidates, so one rule says with which key.
void check_candidate_keys(const std::vector<Named>& strategies, const std::string& path) {
  const Named* first = nullptr;
  for (const Named& rule : strategies) {
    if (rule.second->candidate_key() == CandidateKey::left) continue;
    if (first)
      throw UserError(
          str("[sync] ", path, '.', first->first, " and ", path, '.', rule.first,
              " both say which ranks draw the same softmax candidates, and a rank draws them once a step: "
              "let one rule be seeded (or sampled_rows with draw: rank), the other unique (or draw: step)"));
    first = &rule;
  }
}

std::string list_of(const std::vector<ParameterSpec>& specs) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : specs) names.push_back(spec.name);
  return config::join(names);
}

// What took the parameters of a rule to which none is left, and what to write instead.
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
      ", and inherited rules stand before one's own. Choose a group with the rules that are wanted (sync=NAME), or "
      "leave the inherited ones out, by `- override sync: null` in the defaults list or ~sync on the command "
      "line, and give all rules");
}

// A tied table has the name of the model's parameter.
std::string tied_table(const Rule& rule, const std::regex& pattern, const std::vector<ParameterSpec>& params,
                       const std::map<std::string, const Rule*>& takers) {
  const auto tied = std::find_if(params.begin(), params.end(), [](const ParameterSpec& spec) { return spec.output; });
  if (tied == params.end() || tied->name.starts_with("softmax.") || !std::regex_search("softmax.weight", pattern))
    return "";
  const auto taker = takers.find(tied->name);
  const std::string why = str(": the output layer's table is ", tied->name, " (tied)");
  if (taker == takers.end()) return str(why, "; write params: '^", tied->name, "'");
  return str(why, ", which ", taker->second->path, " covers; leave this rule out (~", rule.path, ") and give ",
             taker->second->path, " its strategy if that is wanted");
}

[[noreturn]] void fail_empty(const Rule& rule, const std::regex& pattern, const std::vector<ParameterSpec>& params,
                             const std::map<std::string, const Rule*>& takers) {
  std::vector<const Rule*> took;
  for (const ParameterSpec& spec : params)
    if (std::regex_search(spec.name, pattern)) took.push_back(takers.at(spec.name));
  const std::string start =
      str("[sync] ", config::at(rule.config.mark, rule.path + ".params"), "'", rule.params, "' matches no parameter");
  if (!took.empty()) throw UserError(start + taken_by(rule, took));
  throw UserError(str(start, tied_table(rule, pattern, params, takers), "; there are: ", list_of(params)));
}

}  // namespace

struct SyncRules::Impl {
  struct Unit {
    SyncStrategy* strategy;
    std::vector<std::string> names;
    size_t missing = 0;  // gradients of this step that are not complete yet
  };

  void add_units(SyncStrategy& strategy, const std::vector<ParameterSpec>& specs);
  void order_units(const std::vector<ParameterSpec>& all);
  void post_ready();

  std::vector<Named> strategies;  // by rule name, in recipe order
  std::map<std::string, SyncStrategy*> by_param;
  std::vector<ServerStrategy*> servers;
  std::vector<Unit> units;
  std::map<std::string, size_t> unit_of;
  size_t next = 0;  // the first unit that was not posted in this step
  int ranks = 1;
  std::string path;  // of `sync` in the recipe
  Context ctx;  // of the step, as units see it
  ParameterStore* params = nullptr;
  std::vector<UnitTime> timeline;               // as units
  std::chrono::steady_clock::time_point start;  // of the step
  std::unique_ptr<train::UnitQueue> queue;

  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }
  void travel(size_t i);
};

// Backward finishes parameters in about the reverse order of their declaration.
void SyncRules::Impl::add_units(SyncStrategy& strategy, const std::vector<ParameterSpec>& specs) {
  std::set<std::string> left;
  for (const ParameterSpec& spec : specs) left.insert(spec.name);
  for (std::vector<std::string>& names : strategy.units({specs.rbegin(), specs.rend()})) {
    for (const std::string& name : names)
      LMX_CHECK(left.erase(name) == 1, "a strategy's units hold '", name, "', not its own or twice");
    units.push_back({&strategy, std::move(names)});
  }
  LMX_CHECK(left.empty(), "a strategy's units leave out '", *left.begin(), "'");
}

// One order for the units of all rules: by the parameter that backward finishes last.
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
    queue->post([this, i = next] { travel(i); });
  }
}

void SyncRules::Impl::travel(size_t i) {
  const Span span(ctx.tracer, "sync");
  UnitTime& time = timeline[i];
  time.begin = now();
  std::vector<Var> vars;
  for (const std::string& name : units[i].names) vars.push_back(params->at(name));
  const size_t entered = ctx.comm->ledger().size();
  units[i].strategy->reduce(ctx, vars);
  for (size_t e = entered; e < ctx.comm->ledger().size(); ++e) {
    time.sent += ctx.comm->ledger()[e].sent;
    time.received += ctx.comm->ledger()[e].received;
  }
  time.end = now();
}

SyncRules::SyncRules(const Node& sync, const std::string& path, const std::vector<ParameterSpec>& params, int rank,
                     int ranks, RandomKey key)
    : impl_(std::make_unique<Impl>()) {
  impl_->ranks = ranks;
  impl_->path = path;
  std::vector<ParameterSpec> left = params;
  std::map<std::string, const Rule*> takers;  // by parameter
  const std::vector<Rule> rules = read_rules(sync, path);
  for (const Rule& rule : rules) {
    const std::regex pattern = pattern_of(rule);
    SyncEnv env{rule.name, {}, rank, ranks, key.fold(rule.name)};
    std::vector<ParameterSpec> others;
    for (const ParameterSpec& spec : left)
      (std::regex_search(spec.name, pattern) ? env.params : others).push_back(spec);
    if (env.params.empty()) fail_empty(rule, pattern, params, takers);
    for (const ParameterSpec& spec : env.params) takers[spec.name] = &rule;
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, rule.config, rule.path);
    auto strategy = create<SyncFactory>(plugin, rule.config, rule.path, env);
    for (const ParameterSpec& spec : env.params) impl_->by_param[spec.name] = strategy.get();
    impl_->add_units(*strategy, env.params);
    if (ServerStrategy* server = strategy->server()) impl_->servers.push_back(server);
    impl_->strategies.emplace_back(rule.name, std::move(strategy));
    left = std::move(others);
  }
  check_candidate_keys(impl_->strategies, path);
  if (!left.empty())
    throw UserError(str("[sync] no rule of ", path, " covers ", list_of(left),
                        "; end with {rest: {params: \".*\", strategy: allreduce}}"));
  impl_->order_units(params);
}

SyncRules::~SyncRules() = default;

void SyncRules::begin_step(Context& ctx, ParameterStore& params, std::span<const Batch> share, StepPlan& plan) {
  if (!impl_->queue && impl_->servers.empty()) impl_->queue = std::make_unique<train::UnitQueue>(ctx.comm->overlaps());
  for (auto& [name, s] : impl_->strategies) s->begin_step(ctx, share, plan);
  impl_->ctx = ctx;
  impl_->ctx.tape = nullptr;
  impl_->params = &params;
  impl_->next = 0;
  impl_->start = std::chrono::steady_clock::now();
  impl_->timeline.clear();
  if (impl_->servers.empty())  // whose parameters do not travel in units
    for (const Impl::Unit& unit : impl_->units) impl_->timeline.push_back({unit.names[0], 0, 0, 0, 0, 0});
  for (Impl::Unit& unit : impl_->units) unit.missing = unit.names.size();
}

void SyncRules::grad_ready(const Var& param) {
  Impl::Unit& unit = impl_->units[impl_->unit_of.at(param.name())];
  LMX_CHECK(unit.missing > 0, "the gradient of '", param.name(), "' is complete twice");
  if (--unit.missing == 0) impl_->timeline[impl_->unit_of.at(param.name())].ready = impl_->now();
  impl_->post_ready();
}

void SyncRules::finish() {
  for (size_t i = 0; i < impl_->units.size(); ++i)
    if (std::exchange(impl_->units[i].missing, 0) > 0) impl_->timeline[i].ready = impl_->now();
  impl_->post_ready();
  impl_->queue->drain();
}

bool SyncRules::owns_update(const Var& param) const {
  return impl_->by_param.at(param.name())->owns_update(param);
}

void SyncRules::after_step(Context& ctx) {
  for (auto& [name, s] : impl_->strategies) s->after_step(ctx);
}

void SyncRules::discard() {
  for (auto& [name, s] : impl_->strategies) s->discard();
}

void SyncRules::rescale(double factor) {
  for (auto& [name, s] : impl_->strategies) s->rescale(factor);
}

std::vector<UnitPlan> SyncRules::plan(const std::vector<ParameterSpec>& params,
                                      const std::function<TableRows(const ParameterSpec&)>& rows) const {
  std::vector<UnitPlan> plans;
  if (impl_->ranks < 2 || !impl_->servers.empty()) return plans;
  for (const Impl::Unit& unit : impl_->units) {
    Traffic traffic{.rank = 0, .ranks = impl_->ranks, .dense = {}, .sparse = {}};
    for (const ParameterSpec& spec : params) {
      if (std::find(unit.names.begin(), unit.names.end(), spec.name) == unit.names.end()) continue;
      unit.strategy->plan(traffic, spec, rows(spec));
    }
    plans.push_back({unit.strategy->expected_bytes(traffic), unit.strategy->kept_bytes(traffic)});
  }
  return plans;
}

bool SyncRules::replicated() const {
  return std::all_of(impl_->strategies.begin(), impl_->strategies.end(),
                     [](const auto& entry) { return entry.second->replicated(); });
}

StateDict SyncRules::state() const {
  StateDict all;
  for (const auto& [name, s] : impl_->strategies)
    for (const auto& [key, t] : s->state()) all.emplace(str(name, "/", key), t);
  return all;
}

void SyncRules::load(Context& ctx, const std::vector<StateDict>& ranks) {
  for (auto& [name, s] : impl_->strategies) {
    std::vector<StateDict> own(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r)
      for (const auto& [key, t] : ranks[r])
        if (key.starts_with(name + "/")) own[r].emplace(key.substr(name.size() + 1), t);
    s->load(ctx, own);
  }
}

const std::vector<UnitTime>& SyncRules::timeline() const {
  return impl_->timeline;
}

CommTimes SyncRules::take_times() {
  return impl_->queue ? impl_->queue->take_times() : CommTimes{};
}

std::map<std::string, CodecHealth> SyncRules::take_health() {
  std::map<std::string, CodecHealth> all;
  for (auto& [name, s] : impl_->strategies) all.merge(s->take_health());
  return all;
}

std::vector<std::pair<std::string, double>> SyncRules::take_values() {
  std::vector<std::pair<std::string, double>> all;
  for (auto& [name, s] : impl_->strategies)
    for (const auto& [key, value] : s->take_values()) all.emplace_back(str(name, '/', key), value);
  return all;
}

std::vector<std::string> SyncRules::describe(int ranks) const {
  std::vector<std::string> lines;
  for (const auto& [name, s] : impl_->strategies)
    if (const std::string text = s->describe(ranks); !text.empty()) lines.push_back(str("sync.", name, ": ", text));
  return lines;
}

std::vector<std::string> SyncRules::summary() const {
  std::vector<std::string> lines;
  for (const auto& [name, s] : impl_->strategies)
    if (const std::string text = s->summary(); !text.empty()) lines.push_back(str("sync.", name, ": ", text));
  return lines;
}

void SyncRules::check_loss(const Loss& loss) const {
  for (const ParameterSpec& spec : loss.parameters()) {
    const auto serving = impl_->by_param.find(spec.name);
    for (const auto& [name, s] : impl_->strategies)
      if (serving != impl_->by_param.end() && serving->second == s.get() && s->plans_rows(spec.name))
        loss.check_planned(str(impl_->path, '.', name));
  }
  if (loss.draws_candidates()) return;
  for (const auto& [name, s] : impl_->strategies)
    if (s->candidate_key() == CandidateKey::needed)
      throw UserError(
          str("[sync] sync.", name,
              ": groups of ranks are to draw a softmax's candidates with one seed, but this loss draws none; "
              "give a loss that samples (sampled_softmax, two_stage_softmax), or strategy unique"));
}

const std::vector<ServerStrategy*>& SyncRules::servers() const {
  return impl_->servers;
}

Node SyncRules::full_config(const Node& sync, const std::string& path) {
  Node all = Node::map(sync.mark);
  const std::vector<Rule> rules = read_rules(sync, path);
  std::string expected;
  for (const Rule& rule : rules) {
    pattern_of(rule);
    Node full = full_component(PluginKind::sync, rule.config, rule.path);
    const std::string pace =
        Registry::instance().find(PluginKind::sync, rule.config, rule.path).descriptor->pace(rule.config, rule.path);
    if (&rule == &rules.front()) expected = pace;
    check_pace(rule, pace, rules.front(), expected);
    Node& out = all.set(rule.name, Node::map());
    out.set("params", Node::string(rule.params));
    out.set("strategy", Node::string(rule.strategy));
    for (auto& [key, value] : full.entries)
      if (key != "name") out.set(key, std::move(value));
  }
  return all;
}

bool SyncRules::asynchronous(const Node& sync, const std::string& path) {
  for (const Rule& rule : read_rules(sync, path)) {
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, rule.config, rule.path);
    return !plugin.descriptor->pace(rule.config, rule.path).empty();
  }
  return false;
}

}  // namespace lmx
