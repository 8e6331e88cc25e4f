// The exchange of a rank's gradients: in which order units are reduced, and what they exchange.
#include "recipe/exchanger.h"

#include <algorithm>
#include <set>

#include "backend/counting/device.h"
#include "base/clock.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/param_server.h"
#include "lmx/plugin.h"
#include "lmx/shard_strategy.h"
#include "nn/state_dict.h"

namespace lmx {
namespace {

template <class Body>
auto call(const BoundRule& rule, const char* function, Body&& body) {
  return in_plugin(*rule.plugin, function, [&] { return body(*rule.rule); });
}

// A rank samples one set of candidates in a step, so only one rule may set the key.
void check_candidate_keys(const std::vector<BoundRule>& rules, const std::string& path) {
  const BoundRule* first = nullptr;
  for (const BoundRule& rule : rules) {
    if (rule.rule->candidate_key() == CandidateKey::left) continue;
    if (first)
      throw UserError(
          str("[sync] ", path, '.', first->name, " and ", path, '.', rule.name,
              " both set which ranks sample the same softmax candidates, and a rank samples them once in a step; "
              "change the strategy or the options of one of them, so that it leaves the candidates to the other"));
    first = &rule;
  }
}

}  // namespace

Exchanger::Exchanger(std::vector<BoundRule> rules, const std::vector<ParameterSpec>& params, int ranks,
                     std::string path)
    : rules_(std::move(rules)), ranks_(ranks), path_(std::move(path)) {
  for (const BoundRule& rule : rules_)
    if (ServerStrategy* server = rule.rule->server())
      servers_.push_back(server);
    else if (rule.rule->replica())
      replicas_.push_back(&rule);
    else
      add_units(rule);
  check_candidate_keys(rules_, path_);
  order_units(params);
  for (const BoundRule& rule : rules_)
    if (ShardStrategy* shard = rule.rule->shard()) shards_.push_back(shard);
  for (const Unit& unit : units_)
    if (unit.rule->rule->shard()) published_.push_back(unit);
}

Exchanger::~Exchanger() = default;

// Backward finishes parameters in about the reverse order of their declaration.
void Exchanger::add_units(const BoundRule& rule) {
  std::set<std::string> left;
  for (const ParameterSpec& spec : rule.params) left.insert(spec.name);
  LMX_CHECK(rule.rule->strategy(), "rule ", rule.name, " is of no known kind");
  const auto found = in_plugin(*rule.plugin, "units()", [&] {
    return rule.rule->strategy()->units({rule.params.rbegin(), rule.params.rend()});
  });
  for (const std::vector<std::string>& names : found) {
    for (const std::string& name : names)
      LMX_CHECK(left.erase(name) == 1, "a strategy's units hold '", name, "', not its own or twice");
    units_.push_back({&rule, names});
  }
  LMX_CHECK(left.empty(), "a strategy's units leave out '", *left.begin(), "'");
}

// Sorts the units of all rules by their parameter that backward finishes last.
void Exchanger::order_units(const std::vector<ParameterSpec>& params) {
  std::map<std::string, size_t> finished;
  for (size_t i = 0; i < params.size(); ++i) finished[params[i].name] = params.size() - i;
  const auto last = [&](const Unit& u) {
    size_t at = 0;
    for (const std::string& name : u.names) at = std::max(at, finished.at(name));
    return at;
  };
  std::stable_sort(units_.begin(), units_.end(), [&](const Unit& a, const Unit& b) { return last(a) < last(b); });
  for (size_t i = 0; i < units_.size(); ++i)
    for (const std::string& name : units_[i].names) unit_of_[name] = i;
}

void Exchanger::post_ready() {
  for (; next_ < units_.size() && units_[next_].missing == 0; ++next_) {
    Unit& unit = units_[next_];
    queue_->post(
        std::move(unit.ready), [this, &unit] { reduce(unit); }, gradients(unit));
  }
}

std::vector<Tensor> Exchanger::gradients(const Unit& unit) const {
  std::vector<Tensor> all;
  for (const std::string& name : unit.names) {
    const Gradient& grad = params_->at(name).grad();
    if (grad.dense.defined()) all.push_back(grad.dense);
    for (const RowSparse& piece : grad.pieces) all.push_back(piece.rows);
  }
  return all;
}

template <class Body>
void Exchanger::exchange(Unit& unit, const char* function, Body&& body) {
  const Span span(ctx_.tracer, "sync");
  const double cpu = thread_cpu_s();
  Context own = ctx_;
  use_stream_of_thread(own);
  const size_t entered = ctx_.comm->ledger().size();
  const StepRecord* const record = step_record(ctx_);
  const int64_t allocated = record ? record->allocated_outside() : 0;
  call(*unit.rule, function, [&](SyncRule& s) { body(own, s); });
  unit.bytes.add(ctx_.comm->ledger(), entered);
  // The rank reads what it sends and receives. Each other byte that it allocates is written once and read once.
  if (record) {
    UnitBytes& b = unit.bytes;
    b.moved = b.sent + b.received + 2 * std::max<int64_t>(0, record->allocated_outside() - allocated - b.received);
  }
  unit.cpu = thread_cpu_s() - cpu;
}

void Exchanger::reduce(Unit& unit) {
  std::vector<Var> vars;
  for (const std::string& name : unit.names) vars.push_back(params_->at(name));
  exchange(unit, "reduce()", [&](Context& ctx, SyncRule& s) { s.strategy()->reduce(ctx, vars); });
}

void Exchanger::publish() {
  if (published_.empty()) return;
  for (Unit& unit : published_)
    queue_->post(queue_->now(), [this, &unit] {
      exchange(unit, "gather()", [&](Context& ctx, SyncRule& s) { s.shard()->publish(ctx, unit.names); });
    });
  queue_->drain();
}

void Exchanger::begin_step(Context& ctx, ParameterStore& params, std::span<const Batch> share, StepPlan& plan) {
  if (!queue_ && sums()) queue_ = std::make_unique<UnitQueue>(ctx.comm->overlaps(), ctx.device);
  for (const BoundRule& rule : rules_) call(rule, "begin_step()", [&](SyncRule& s) { s.begin_step(ctx, share, plan); });
  ctx_ = ctx;
  ctx_.tape = nullptr;
  params_ = &params;
  next_ = 0;
  if (queue_) queue_->begin_step();
  for (Unit& unit : units_) unit.missing = unit.names.size(), unit.bytes = {}, unit.cpu = 0;
  for (Unit& unit : published_) unit.bytes = {}, unit.cpu = 0;
}

void Exchanger::grad_ready(const Var& param) {
  const auto found = unit_of_.find(param.name());
  if (found == unit_of_.end()) return;  // of a ReplicaStrategy
  Unit& unit = units_[found->second];
  LMX_CHECK(unit.missing > 0, "the gradient of '", param.name(), "' is complete twice");
  if (--unit.missing == 0) unit.ready = queue_->now();
  post_ready();
}

void Exchanger::finish() {
  for (Unit& unit : units_)
    if (std::exchange(unit.missing, 0) > 0) unit.ready = queue_->now();
  post_ready();
  if (queue_) queue_->drain();
}

void Exchanger::after_step(Context& ctx) {
  for (const BoundRule& rule : rules_) call(rule, "after_step()", [&](SyncRule& s) { s.after_step(ctx); });
}

void Exchanger::discard() {
  for (const BoundRule& rule : rules_) call(rule, "discard()", [](SyncRule& s) { s.discard(); });
}

void Exchanger::rescale(double factor) {
  for (const BoundRule& rule : rules_) call(rule, "rescale()", [&](SyncRule& s) { s.rescale(factor); });
}

RandomKey Exchanger::candidate_key(int rank, int64_t step, RandomKey otherwise) const {
  Context ctx;
  ctx.rank = rank;
  ctx.ranks = ranks_;
  StepPlan plan{.step = step, .sampler_key = otherwise};
  for (const BoundRule& rule : rules_)
    if (rule.rule->candidate_key() == CandidateKey::needed)
      call(rule, "begin_step()", [&](SyncRule& s) { s.begin_step(ctx, {}, plan); });
  return plan.sampler_key;
}

StateDict Exchanger::state() const {
  StateDict all;
  for (const BoundRule& rule : rules_)
    add_with_prefix(all, rule.name + "/", call(rule, "state()", [](SyncRule& s) { return s.state(); }));
  return all;
}

void Exchanger::load(Context& ctx, const std::vector<StateDict>& ranks) {
  for (const BoundRule& rule : rules_) {
    std::vector<StateDict> own;
    for (const StateDict& rank : ranks) own.push_back(with_prefix(rank, rule.name + "/"));
    call(rule, "load()", [&](SyncRule& s) { s.load(ctx, own); });
  }
}

StateDict Exchanger::common_state() const {
  StateDict all;
  for (const BoundRule& rule : rules_)
    add_with_prefix(all, rule.name + "/", call(rule, "common_state()", [](SyncRule& s) { return s.common_state(); }));
  return all;
}

void Exchanger::load_common(Context& ctx, const StateDict& state) {
  for (const BoundRule& rule : rules_)
    call(rule, "load_common()", [&](SyncRule& s) { s.load_common(ctx, with_prefix(state, rule.name + "/")); });
}

std::vector<UnitTime> Exchanger::timeline() const {
  std::vector<UnitTime> all;
  const auto add = [&](const Unit& unit, bool after) {
    all.push_back(
        {.rule = unit.rule->name, .params = unit.names, .bytes = unit.bytes, .cpu = unit.cpu, .after_update = after});
  };
  for (const Unit& unit : units_) add(unit, false);
  for (const Unit& unit : published_) add(unit, true);
  if (!queue_) return all;
  const std::vector<UnitQueue::JobTime> times = queue_->job_times();
  for (size_t i = 0; i < std::min(all.size(), times.size()); ++i)
    all[i].ready = times[i].ready, all[i].begin = times[i].begin, all[i].end = times[i].end;
  return all;
}

CommTimes Exchanger::take_times() {
  return queue_ ? queue_->take_times() : CommTimes{};
}

std::map<std::string, CodecHealth> Exchanger::take_health() {
  std::map<std::string, CodecHealth> all;
  for (const BoundRule& rule : rules_) all.merge(rule.rule->take_health());
  return all;
}

std::vector<std::pair<std::string, double>> Exchanger::take_values() {
  std::vector<std::pair<std::string, double>> all;
  for (const BoundRule& rule : rules_)
    for (const auto& [key, value] : rule.rule->take_values()) all.emplace_back(str(rule.name, '/', key), value);
  return all;
}

std::vector<std::string> Exchanger::describe(int ranks) const {
  std::vector<std::string> lines;
  for (const BoundRule& rule : rules_)
    if (const std::string text = rule.rule->describe(ranks); !text.empty())
      lines.push_back(str("sync.", rule.name, ": ", text));
  return lines;
}

std::vector<std::string> Exchanger::summary() const {
  std::vector<std::string> lines;
  for (const BoundRule& rule : rules_)
    if (const std::string text = rule.rule->summary(); !text.empty())
      lines.push_back(str("sync.", rule.name, ": ", text));
  return lines;
}

std::vector<std::string> Exchanger::warnings(bool loss_scaled) const {
  std::vector<std::string> all;
  for (const BoundRule& rule : rules_)
    for (std::string& line : rule.rule->warnings(loss_scaled)) all.push_back(std::move(line));
  return all;
}

void Exchanger::check_loss(const Loss& loss) const {
  for (const ParameterSpec& output : loss.parameters())
    for (const BoundRule& rule : rules_)
      for (const ParameterSpec& spec : rule.params)
        if (spec.name == output.name && rule.rule->plans_rows(spec.name))
          loss.check_planned(str(path_, '.', rule.name));
  if (loss.draws_candidates()) return;
  for (const BoundRule& rule : rules_)
    if (rule.rule->candidate_key() == CandidateKey::needed)
      throw UserError(str(
          "[sync] sync.", rule.name,
          ": groups of ranks are to sample a softmax's candidates with one seed, but this loss samples none; "
          "choose a loss that samples (sampled_softmax, two_stage_softmax), or a strategy that needs no candidates"));
}

void Exchanger::check_directions(const std::vector<ClipRule>& clip, bool loss_scaled,
                                 const Optimizer& optimizer) const {
  for (const BoundRule& rule : rules_) {
    if (rule.rule->result() == SyncResult::sum) continue;
    const std::string place = str("[sync] ", path_, '.', rule.name, ": the result is a direction, not a gradient");
    if (loss_scaled)
      throw UserError(str(place, ", so a loss scale must not be divided out; choose precision bf16 or fp32"));
    for (const ParameterSpec& spec : rule.params) {
      if (rule.rule->result() == SyncResult::update && optimizer.keeps_state(spec.name))
        throw UserError(str("[sync] ", path_, '.', rule.name,
                            ": the result contains moments of the gradients, and the ", "optimizer of '", spec.name,
                            "' would keep moments of that; choose an optimizer without a ",
                            "state, as with optimizer=sgd, which multiplies the result by its rate"));
      const auto clips = [&](const ClipRule& c) { return c.params.matches(spec.name); };
      const auto found = std::find_if(clip.begin(), clip.end(), clips);
      if (found != clip.end() && found->norm > 0)
        throw UserError(str(place, ", so clipping '", spec.name,
                            "' would only change its length; give clip: 0, or a "
                            "rule of norm 0 for these parameters before the others"));
    }
  }
}

void Exchanger::check_run(const Node& sync) const {
  for (const ShardStrategy* shard : shards_) {
    if (shard->stage() != 3) continue;
    const std::string& rule = shard->env().group;
    const Node* keys = sync.find(rule);
    const Node* stage = keys ? keys->find("stage") : nullptr;
    throw UserError(str(config::at(stage ? stage->mark : sync.mark, str(config::join_path(path_, rule), ".stage")),
                        "stage 3 can only be planned (lmx plan); a run needs stage 1 or 2"));
  }
}

void Exchanger::check_batch(int64_t sequences) const {
  if (!replicas_.empty() && sequences < ranks_)
    throw UserError(str("[sync] ", ranks_,
                        " ranks have their own values, so each one needs a part of every batch, and batch.global is ",
                        sequences, "; choose a larger batch or fewer ranks"));
}

const std::vector<ServerStrategy*>& Exchanger::servers() const {
  return servers_;
}

const std::vector<const BoundRule*>& Exchanger::replicas() const {
  return replicas_;
}

const std::vector<ShardStrategy*>& Exchanger::shards() const {
  return shards_;
}

}  // namespace lmx
