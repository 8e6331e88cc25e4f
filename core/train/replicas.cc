#include "train/replicas.h"

#include <algorithm>
#include <utility>

#include "backend/counting/device.h"
#include "backend/cuda.h"
#include "comm/rows.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"
#include "nn/state_dict.h"

namespace lmx {
namespace {

// No rule of `sync` can have such a name.
constexpr const char *kValue = "@value/", *kOptimizer = "@optimizer/", *kReceived = "@received/",
                     *kMergeAt = "@merge_at/", *kAnchor = "@anchor/", *kKept = "@kept/";

// The values of some parameters one after the other. A copy.
Tensor joined(Context& ctx, const ParameterStore& params, const Fragment& f) {
  std::vector<Tensor> values;
  for (const std::string& name : f.names) values.push_back(params.at(name).value());
  return comm::joined(ctx, DType::f32, values);
}

void spread(const Tensor& all, ParameterStore& params, const Fragment& f) {
  int64_t at = 0;
  for (const std::string& name : f.names) {
    Var& param = params.at(name);
    const int64_t n = param.shape().numel();
    param.value().reshape({-1}).copy_from(all.slice(at, at + n));
    param.changed();
    at += n;
  }
}

// The fragments of a rule without values.
std::vector<Fragment> fragments_of(const BoundRule& rule, const ReplicaStrategy& strategy) {
  std::map<std::string, int64_t> left;
  for (const ParameterSpec& spec : rule.params) left.emplace(spec.name, spec.shape.numel());
  std::vector<Fragment> all;
  for (std::vector<std::string>& names : in_plugin(*rule.plugin, "fragments()", [&] { return strategy.fragments(); })) {
    Fragment f{.index = static_cast<int64_t>(all.size()), .names = std::move(names)};
    for (const std::string& name : f.names) {
      const auto found = left.find(name);
      LMX_CHECK(found != left.end(), "a strategy's fragments hold '", name, "', not its own or twice");
      f.size += found->second;
      left.erase(found);
    }
    all.push_back(std::move(f));
  }
  LMX_CHECK(left.empty(), "a strategy's fragments leave out '", left.begin()->first, "'");
  return all;
}

}  // namespace

std::set<std::string> params_of(const std::vector<const BoundRule*>& rules) {
  std::set<std::string> names;
  for (const BoundRule* rule : rules)
    for (const ParameterSpec& spec : rule->params) names.insert(spec.name);
  return names;
}

Replicas::Replicas(std::vector<const BoundRule*> rules, ParameterStore& shared, const ParameterStore& own,
                   std::unique_ptr<Optimizer> optimizer, bool alone)
    : rules_(std::move(rules)),
      shared_(shared),
      own_(own.subset(params_of(rules_))),
      optimizer_(std::move(optimizer)),
      alone_(alone) {
  for (const BoundRule* rule : rules_) {
    for (Fragment& f : fragments_of(*rule, *rule->rule->replica())) {
      const Rhythm r = in_plugin(*rule->plugin, "rhythm()", [&] { return rule->rule->replica()->rhythm(f.index); });
      LMX_CHECK(r.offset >= 0 && r.offset < r.period && r.delay >= 0 && r.delay < r.period, "the rhythm of fragment ",
                f.index, " of sync.", rule->name, " has period ", r.period, ", offset ", r.offset, ", delay ", r.delay);
      parts_.push_back({rule, std::move(f), r});
    }
  }
}

template <class Body>
auto Replicas::call(const Part& part, const char* function, Body&& body) {
  return in_plugin(*part.rule->plugin, function, [&] { return body(*part.rule->rule->replica()); });
}

void Replicas::update(Context& ctx, const GradientMeasure& measure, double lr, int64_t number) {
  std::vector<ParameterUpdate> updates;
  for (const std::string& name : own_.names())
    if (Var& param = own_.at(name); !param.grad().empty()) updates.push_back({&param, measure.scale(name)});
  optimizer_->update_all(ctx, updates, lr, number);
}

bool Replicas::exchanges(const Part& part, int64_t step) {
  const Rhythm& r = part.rhythm;
  return step >= r.offset + r.period && (step - r.offset) % r.period == 0;
}

bool Replicas::merges(const Part& part, int64_t step, int64_t last) {
  return part.exchanged && (step >= part.merge_at || step >= last);
}

bool Replicas::due(int64_t step, int64_t last) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& p) { return merges(p, step, last) || exchanges(p, step); });
}

void Replicas::finish_exchanges() {
  if (queue_) queue_->drain();
}

void Replicas::after_step(Context& ctx, int64_t step, int64_t last, const std::function<void()>& meet) {
  for (Part& part : parts_) part.at_anchor = false;
  if (!due(step, last)) return;
  UnitQueue& jobs = queue(ctx);
  jobs.begin_step();  // forgets the times of earlier exchanges
  jobs.drain();
  if (meet) jobs.post(jobs.now(), meet);
  jobs.drain();
  for (Part& part : parts_)
    if (merges(part, step, last)) merge(ctx, part);
  for (Part& part : parts_) {
    if (!exchanges(part, step)) continue;
    exchange(ctx, part, (step - part.rhythm.offset) / part.rhythm.period - 1);
    part.merge_at = step + part.rhythm.delay;
    if (merges(part, step, last)) merge(ctx, part);
  }
}

std::vector<UnitTime> Replicas::synchronise(Context& ctx) {
  std::vector<UnitTime> all;
  for (Part& part : parts_) {
    const size_t entered = ctx.comm->ledger().size();
    exchange(ctx, part, 0);
    finish_exchanges();
    UnitTime unit{.rule = part.rule->name, .params = part.fragment.names};
    unit.bytes.add(ctx.comm->ledger(), entered);
    unit.bytes.moved = unit.bytes.sent + unit.bytes.received;
    unit.period = part.rhythm.period;
    unit.delay = alone_ ? part.rhythm.delay : 0;
    unit.after_update = true;
    merge(ctx, part);
    all.push_back(std::move(unit));
  }
  return all;
}

int64_t Replicas::unused_steps(int64_t last) const {
  int64_t least = last;
  for (const Part& part : parts_)
    if (last >= part.rhythm.offset + part.rhythm.period)
      least = std::min(least, (last - part.rhythm.offset) % part.rhythm.period);
  return least;
}

std::string Replicas::name_of(const Part& part) const {
  return str(part.rule->name, '/', part.fragment.index);
}

Fragment Replicas::with_values(Context& ctx, const Part& part) const {
  Fragment f = part.fragment;
  f.own = joined(ctx, own_, f);
  f.anchor = part.anchor;
  if (!f.anchor.defined())
    f.anchor = ctx.comm->once_tensor(MemClass::communication, [&] { return joined(ctx, shared_, f); });
  return f;
}

// Whether an exchange runs in parallel with the next steps. Ranks of one process exchange at once, because they share
// the processor; and so do devices, which would use tensors of the next steps on two streams, and ranks that use the
// communicator in each step.
bool Replicas::beside(const Context& ctx, const Part& part) const {
  return alone_ && part.rhythm.delay > 0 && ctx.comm->overlaps() && ctx.device.kind == Device::Kind::cpu;
}

// A device measures exchanges on its exchange stream. On the CPU a rank uses all its cores to exchange, unless
// exchanges run in parallel with steps.
UnitQueue& Replicas::queue(const Context& ctx) {
  if (!queue_) {
    const bool thread =
        ctx.device.kind == Device::Kind::cuda
            ? ctx.comm->overlaps()
            : std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return beside(ctx, part); });
    queue_ = std::make_unique<UnitQueue>(thread, ctx.device);
  }
  return *queue_;
}

void Replicas::exchange(Context& ctx, Part& part, int64_t round) {
  part.fragment.round = round;
  Fragment f = with_values(ctx, part);
  part.exchanged = true;
  UnitQueue& jobs = queue(ctx);
  std::vector<Tensor> used{f.own, f.anchor};
  if (f.kept.defined()) used.push_back(f.kept);
  auto job = [this, &part, own = ctx, f = std::move(f)]() mutable {
    use_stream_of_thread(own);
    const Span span(own.tracer, "sync");
    part.received = call(part, "exchange()", [&](ReplicaStrategy& s) { return s.exchange(own, f); });
    part.fragment.kept = f.kept;
  };
  jobs.post(jobs.now(), std::move(job), std::move(used));
  if (!beside(ctx, part)) jobs.drain();
}

void Replicas::merge(Context& ctx, Part& part) {
  finish_exchanges();  // it may have begun in this step, if that is the last
  const Span span(ctx.tracer, "merge");
  Fragment f = with_values(ctx, part);
  part.exchanged = false;
  const auto merged =
      call(part, "merge()", [&](ReplicaStrategy& s) { return s.merge(ctx, f, std::exchange(part.received, {})); });
  part.fragment.kept = f.kept;
  if (part.rule->rule->replica()->gossips()) {
    part.anchor = merged.anchor;
    part.published = false;
  } else {
    share(ctx, merged.anchor, f);
  }
  spread(merged.own, own_, f);
  part.at_anchor = merged.own.raw() == merged.anchor.raw();
}

void Replicas::share(Context& ctx, const Tensor& anchor, const Fragment& f) {
  ctx.comm->once<int>([&] {
    spread(anchor, shared_, f);
    return 0;
  });
}

void Replicas::publish(Context& ctx) {
  for (Part& part : parts_) {
    if (part.published) continue;
    Tensor mean = ctx.comm->all_reduce(part.anchor, "publish");
    if (ctx.comm->size() > 1) {
      mean = ctx.comm->once_tensor(MemClass::communication,
                                   [&] { return scaled(ctx, mean, 1.0f / static_cast<float>(ctx.comm->size())); });
    }
    share(ctx, mean, part.fragment);
    part.published = true;
  }
}

StateDict Replicas::values() const {
  StateDict all;
  for (const Part& part : parts_)
    if (!part.at_anchor)
      for (const std::string& name : part.fragment.names) all.emplace(name, own_.at(name).value());
  return all;
}

StateDict Replicas::state() const {
  StateDict all;
  add_with_prefix(all, kOptimizer, optimizer_->state());
  add_with_prefix(all, kValue, values());
  for (const Part& part : parts_) {
    if (part.anchor.defined()) all.emplace(kAnchor + name_of(part), part.anchor);
    if (part.fragment.kept.defined()) all.emplace(kKept + name_of(part), part.fragment.kept);
    if (!part.exchanged) continue;
    const auto at = static_cast<double>(part.merge_at);
    all.emplace(kReceived + name_of(part), part.received);
    all.emplace(kMergeAt + name_of(part), Tensor::from<double>(Allocator::cpu(), {1}, std::span(&at, 1)));
  }
  return all;
}

void Replicas::load(Context& ctx, const std::vector<StateDict>& ranks) {
  const auto saved = static_cast<int64_t>(ranks.size());
  const auto differs = [](const StateDict& state) {
    return !with_prefix(state, kValue).empty() || !with_prefix(state, kReceived).empty() ||
           !with_prefix(state, kAnchor).empty();
  };
  const bool gossips =
      std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.rule->rule->replica()->gossips(); });
  if (saved != ctx.ranks && std::any_of(ranks.begin(), ranks.end(), differs))
    throw UserError(str("[sync] the checkpoint has the separate values of ", plural(saved, "rank"), "; ",
                        plural(ctx.ranks, "rank"), " cannot continue from it. Resume with ", plural(saved, "rank"),
                        gossips ? "" : ", or from a checkpoint of a step after which all ranks have equal values"));
  const StateDict& own = ranks[saved_rank(ctx.rank, ranks.size(), ctx.ranks)];
  optimizer_->load(ctx, own_, with_prefix(own, kOptimizer));
  for (Part& part : parts_) {
    load_values(ctx, part, own);
    load_kept(ctx, part, ranks);
  }
}

void Replicas::load_kept(Context& ctx, Part& part, const std::vector<StateDict>& ranks) {
  const bool same = static_cast<int>(ranks.size()) == ctx.ranks;
  const float share = same ? 1.0f : 1.0f / static_cast<float>(ctx.ranks);
  Tensor kept;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto found = ranks[r].find(kKept + name_of(part));
    if (found == ranks[r].end() || (same && static_cast<int>(r) != ctx.rank)) continue;
    const Tensor saved = ctx.upload(found->second);
    if (kept.defined())
      add_scaled(ctx, kept, share, saved);
    else
      kept = scaled(ctx, saved, share);
  }
  part.fragment.kept = kept;
}

void Replicas::load_values(Context& ctx, Part& part, const StateDict& own) {
  part.at_anchor = part.published = true;
  const auto anchor = own.find(kAnchor + name_of(part));
  part.anchor = anchor == own.end() ? Tensor() : ctx.upload(anchor->second);
  if (part.anchor.defined()) spread(part.anchor, own_, part.fragment);
  for (const std::string& name : part.fragment.names) {
    Var& param = own_.at(name);
    const auto found = own.find(kValue + name);
    if (found == own.end()) {
      if (!part.anchor.defined()) param.value().copy_from(shared_.at(name).value());
    } else {
      if (found->second.shape() != param.shape())
        throw UserError(str("[sync] the checkpoint has ", found->second.shape(), " values of ", name,
                            ", and this model ", param.shape()));
      param.value().copy_from(ctx.upload(found->second));
      part.at_anchor = false;
    }
    param.changed();
  }
  const auto received = own.find(kReceived + name_of(part)), at = own.find(kMergeAt + name_of(part));
  part.exchanged = false;
  if (received == own.end() || at == own.end()) return;
  part.exchanged = true;
  part.received = ctx.upload(received->second);
  part.merge_at = static_cast<int64_t>(std::as_const(at->second).values<double>()[0]);
}

}  // namespace lmx
