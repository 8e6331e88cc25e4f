#include "lmx/replica_strategy.h"

#include <algorithm>
#include <utility>

#include "lmx/error.h"
#include "lmx/vectors.h"

namespace lmx {

ReplicaStrategy::ReplicaStrategy(SyncEnv env) : env_(std::move(env)) {}
std::vector<std::vector<std::string>> ReplicaStrategy::fragments() const {
  std::vector<std::string> all;
  for (const ParameterSpec& spec : env_.params) all.push_back(spec.name);
  return {all};
}

std::string ReplicaStrategy::describe(int ranks) const {
  const Rhythm r = rhythm(0);
  const size_t parts = fragments().size();
  std::string text = str(ranks, ranks == 1 ? " rank has its own values" : " ranks have their own values",
                         gossips() ? " and anchors" : "", ", exchanged every ", plural(r.period, "step"));
  if (parts > 1) text += str(" in ", parts, " parts");
  if (r.delay > 0) text += str(", used ", plural(r.delay, "step"), " later");
  return text;
}

void OuterConfig::fields(Fields& f) {
  constexpr int64_t kMost = 1'000'000'000;
  f.field("every", every, "steps between two exchanges of a parameter", {1, kMost});
  f.field("fragments", fragments, "parts of about equal size, which are exchanged at equal distances", {1, kMost});
  f.field("delay", delay, "steps between an exchange and the use of its result", {0, kMost});
  f.field("mix", mix, "part of its values that a rank keeps when it gets the new ones", {0, 1, false});
  f.field("outer_lr", outer_lr, "learning rate of the outer optimizer, SGD", kNonNegative);
  f.field("outer_momentum", outer_momentum, "momentum of the outer optimizer", {0, 1, false});
  f.field("outer_nesterov", outer_nesterov, "Nesterov's form of that momentum");
  f.group("codec", codec, "encoding of the ranks' changes for the exchange");
}

void OuterConfig::check(const std::string& where) const {
  codec.check(where);
  const auto below = [&](const char* key, int64_t value, int64_t limit, const char* why) {
    if (value > limit)
      throw UserError(
          str(where, '.', key, ": ", value, " is more than ", limit, ", because ", why, " (every: ", every, ")"));
  };
  below("fragments", fragments, every, "each step exchanges at most one part");
  below("delay", delay, every - 1, "a result is used before the next exchange of the same part");
}

Traits OuterConfig::traits() const {
  return {{trait::kReplicas, "true"}};
}

struct OuterStrategy::Impl {
  std::vector<std::vector<std::string>> fragments;
  Reducer reducer;
  std::unique_ptr<Optimizer> outer;
};

namespace {

std::string name_of(int64_t fragment) {
  return str("fragment.", fragment);
}

// Successive parameters: a parameter belongs to the part in which its middle element lies.
std::vector<std::vector<std::string>> equal_parts(const std::vector<ParameterSpec>& params, int64_t parts) {
  double all = 0, before = 0;
  for (const ParameterSpec& p : params) all += static_cast<double>(p.shape.numel());
  std::map<int64_t, std::vector<std::string>> by_part;
  for (const ParameterSpec& p : params) {
    const auto size = static_cast<double>(p.shape.numel());
    const auto part = static_cast<int64_t>((before + size / 2) / all * static_cast<double>(parts));
    by_part[std::min(part, parts - 1)].push_back(p.name);
    before += size;
  }
  std::vector<std::vector<std::string>> found;
  for (auto& [part, names] : by_part) found.push_back(std::move(names));
  return found;
}

std::unique_ptr<Optimizer> make_outer(const OuterConfig& c) {
  Node sgd = Node::map();
  sgd.set("name", Node::string("sgd"));
  sgd.set("lr", Node::scalar(trait_value(c.outer_lr)));
  sgd.set("momentum", Node::scalar(trait_value(c.outer_momentum)));
  sgd.set("nesterov", Node::scalar(c.outer_nesterov && c.outer_momentum > 0 ? "true" : "false"));
  return make_optimizer(sgd, "outer");
}

}  // namespace

OuterStrategy::OuterStrategy(const OuterConfig& config, const SyncEnv& env)
    : ReplicaStrategy(env),
      config_(config),
      impl_(new Impl{equal_parts(env.params, config.fragments), {config.codec, env.group}, make_outer(config)}) {}
OuterStrategy::~OuterStrategy() = default;

std::vector<std::vector<std::string>> OuterStrategy::fragments() const {
  return impl_->fragments;
}

Rhythm OuterStrategy::rhythm(int64_t fragment) const {
  return {config_.every, fragment * config_.every / static_cast<int64_t>(impl_->fragments.size()), config_.delay};
}

Tensor OuterStrategy::exchange(Context& ctx, Fragment& f) {
  add_scaled(ctx, f.own, -1, f.anchor);
  return sum_of_changes(ctx, f, f.own);
}

Tensor OuterStrategy::sum_of_changes(Context& ctx, Fragment& f, Tensor change) {
  Tensor sum = impl_->reducer.reduce(ctx, name_of(f.index), change);
  impl_->reducer.commit();
  return sum;
}

// The outer gradient is the negative mean of the changes.
ReplicaStrategy::Merged OuterStrategy::merge(Context& ctx, Fragment& f, const Tensor& received) {
  Tensor anchor = ctx.comm->once_tensor(MemClass::communication, [&] {
    Var values(f.anchor.clone(MemClass::communication), true, name_of(f.index));
    values.grad().dense = received;
    impl_->outer->update(ctx, values, config_.outer_lr, 1, -1.0 / ctx.comm->size());
    return values.value();
  });
  if (config_.mix == 0) return {anchor, anchor};
  add_scaled(ctx, f.own, -1, anchor);
  Tensor own = anchor.clone(MemClass::communication);
  add_scaled(ctx, own, static_cast<float>(config_.mix), f.own);
  return {own, anchor};
}

StateDict OuterStrategy::common_state() const {
  return impl_->outer->state();
}

void OuterStrategy::load_common(Context& ctx, const StateDict& state) {
  ctx.comm->once<int>([&] {
    ParameterStore shapes;
    for (size_t i = 0; i < impl_->fragments.size(); ++i) {
      int64_t size = 0;
      for (const ParameterSpec& p : env().params)
        if (std::find(impl_->fragments[i].begin(), impl_->fragments[i].end(), p.name) != impl_->fragments[i].end())
          size += p.shape.numel();
      shapes.add(ctx, {name_of(static_cast<int64_t>(i)), {size}, {"zeros"}}, RandomKey());
    }
    impl_->outer->load(ctx, shapes, state);
    return 0;
  });
}

StateDict OuterStrategy::state() const {
  return impl_->reducer.state();
}

void OuterStrategy::load(Context& ctx, const std::vector<StateDict>& ranks) {
  impl_->reducer.load(ctx, ranks);
}

std::vector<std::string> OuterStrategy::warnings(bool) const {
  return config_.codec.warnings(str("sync.", env().group, ".codec"), false);
}

std::map<std::string, CodecHealth> OuterStrategy::take_health() {
  return impl_->reducer.take_health();
}

}  // namespace lmx
