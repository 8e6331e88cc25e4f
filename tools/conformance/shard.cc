// The checks of strategies whose ranks divide the update.
#include <algorithm>
#include <optional>

#include "conformance/sync.h"
#include "lmx/shard_strategy.h"
#include "nn/state_dict.h"
#include "recipe/exchanger.h"

namespace lmx::app::conformance {
namespace {

// Two blocks of kSumBlock elements, exactly one, and less.
std::vector<ParameterSpec> divided_parameters() {
  return {
      {"wide", {130, 40}, {}}, {"gate", {24, 33}, {}}, {"bias", {29}, {}}, {"edge", {2, 3}, {}}, {"even", {4096}, {}}};
}

// Weight decay, a state and a clipped norm.
std::unique_ptr<Optimizer> make_adamw(const std::vector<ParameterSpec>& specs) {
  return make_optimizer(parse_yaml("{name: adamw, lr: 0.01, weight_decay: 0.1}", "check"), "optimizer", specs);
}
constexpr double kShardRate = 0.01;
std::vector<ClipRule> clip_rules() {
  return read_clip(parse_yaml("[{params: wide|bias, norm: 0.5}]", "check"), "clip");
}

std::vector<float> host_values(const Context& ctx, const Tensor& t) {
  const auto read = ctx.read<float>(t);
  return {read.get().begin(), read.get().end()};
}

int64_t bytes_of(const StateDict& state) {
  int64_t bytes = 0;
  for (const auto& [name, t] : state) bytes += t.bytes();
  return bytes;
}

// One rank, whose values the ranks of a process share.
class ShardRun {
 public:
  ShardRun(Communicator& comm, const Subject& s) : ctx_(context_of(comm, s.device)), specs_(divided_parameters()) {
    all_ = comm.once<std::shared_ptr<ParameterStore>>([&] {
      auto all = std::make_shared<ParameterStore>();
      for (const ParameterSpec& spec : specs_) all->add(ctx_, spec, RandomKey(5));
      return all;
    });
    own_ = all_->replica();
    const SyncEnv env{"check", specs_, ctx_.rank, ctx_.ranks, RandomKey(3), comm.nodes().per_node()};
    std::vector<BoundRule> rules;
    rules.push_back({"check", specs_, &s.plugin, create<SyncFactory>(s.plugin, s.config, "sync.check", env)});
    sync_ = std::make_unique<Exchanger>(std::move(rules), specs_, ctx_.ranks, "sync");
    shard().attach(ctx_, *all_, make_adamw(specs_));
  }

  void step(int step) {
    StepPlan plan;
    plan.step = step;
    sync_->begin_step(ctx_, own_, {}, plan);
    for (auto spec = specs_.rbegin(); spec != specs_.rend(); ++spec) {
      Var& var = own_.at(spec->name);
      give(ctx_, var, own_of(ctx_.rank, step, *spec));
      sync_->grad_ready(var);
    }
    sync_->finish();
    const GradientMeasure measure(ctx_, own_, clip_rules(), 1, shard().squares(ctx_));
    shard().update(ctx_, measure, kShardRate, step + 1);
    sync_->publish();
    own_.clear_gradients();
    sync_->after_step(ctx_);
  }

  // A run that begins with the values and the state of this one. Collective.
  std::unique_ptr<ShardRun> resumed(Communicator& comm, const Subject& s) {
    StateDict state = shard().gather_optimizer(ctx_);
    const std::vector<StateDict> residuals = gather_states(ctx_, shard().state());
    if (comm.shares_memory()) state = comm.once<StateDict>([&] { return state; });
    auto other = std::make_unique<ShardRun>(comm, s);
    comm.once<int>([&] {
      for (const ParameterSpec& spec : specs_) {
        other->all_->at(spec.name).value().copy_from(all_->at(spec.name).value());
        other->all_->at(spec.name).changed();
      }
      return 0;
    });
    other->shard().load(other->ctx_, residuals);
    // Ranks that are processes have no file with the state of rank 0.
    if (comm.shares_memory() || comm.size() == 1) other->shard().load_optimizer(other->ctx_, state);
    return other;
  }

  ShardStrategy& shard() { return *sync_->shards().front(); }
  Context& ctx() { return ctx_; }
  std::vector<UnitTime> exchanged() const { return sync_->timeline(); }
  Values values() const {
    Values all;
    for (const ParameterSpec& spec : specs_) all.push_back(host_values(ctx_, all_->at(spec.name).value()));
    return all;
  }

 private:
  Context ctx_;
  std::vector<ParameterSpec> specs_;
  std::shared_ptr<ParameterStore> all_;
  ParameterStore own_;
  std::unique_ptr<Exchanger> sync_;
};

// A rank that makes the whole update, with sums in rank order.
class WholeUpdate {
 public:
  explicit WholeUpdate(const Context& ctx) : ctx_(ctx), specs_(divided_parameters()), optimizer_(make_adamw(specs_)) {
    for (const ParameterSpec& spec : specs_) params_.add(ctx_, spec, RandomKey(5));
  }

  void step(int step) {
    for (const ParameterSpec& spec : specs_) give_sum(step, spec);
    const GradientMeasure measure(ctx_, params_, clip_rules());
    std::vector<ParameterUpdate> updates;
    for (const ParameterSpec& spec : specs_)
      if (Var& param = params_.at(spec.name); !param.grad().empty())
        updates.push_back({&param, measure.scale(spec.name)});
    optimizer_->update_all(ctx_, updates, kShardRate, step + 1);
  }

  StateDict state() const { return optimizer_->state(); }
  Values values() const {
    Values all;
    for (const ParameterSpec& spec : specs_) all.push_back(host_values(ctx_, params_.at(spec.name).value()));
    return all;
  }

 private:
  void give_sum(int step, const ParameterSpec& spec) {
    Own sum{{}, std::vector<float>(static_cast<size_t>(spec.shape.numel())), {}};
    for (int r = 0; r < ctx_.ranks; ++r) {
      const Own own = own_of(r, step, spec);
      if (own.values.empty() && ctx_.ranks == 1) sum.values.clear();
      for (size_t i = 0; i < own.values.size(); ++i) sum.values[i] += own.values[i];
    }
    give(ctx_, params_.at(spec.name), sum);
  }

  Context ctx_;
  std::vector<ParameterSpec> specs_;
  ParameterStore params_;
  std::unique_ptr<Optimizer> optimizer_;
};

class ShardCheck : RankChecks {
 public:
  ShardCheck(Communicator& comm, const Subject& s) : RankChecks(comm, s), run_(comm, s) { seen_.shard = true; }

  Observation all() {
    if (s_.device.counts) {
      for (step_ = 0; step_ < kSteps; ++step_) run_.step(step_), add_exchanged();
      return std::move(seen_);
    }
    ShardRun again(comm_, s_);
    std::optional<WholeUpdate> whole;
    if (comm_.rank() == 0) whole.emplace(run_.ctx());  // the other ranks have its values (check "ranks")
    std::unique_ptr<ShardRun> resumed;
    for (step_ = 0; step_ < kSteps; ++step_) {
      if (step_ == kSavedStep) resumed = run_.resumed(comm_, s_);
      run_.step(step_);
      add_exchanged();
      const Values values = run_.values();
      check_step(values);
      if (whole) whole->step(step_);
      if (whole && !s_.approximate && !same_bits(values, whole->values()))
        add("update", "other values than those of a rank that makes the whole update");
      again.step(step_);
      if (!same_bits(again.values(), values)) add("determinism", "a second run gives other bits");
      if (!resumed || !(comm_.shares_memory() || comm_.size() == 1)) continue;
      resumed->step(step_);
      if (!same_bits(resumed->values(), values))
        add("state", str("a run that loads the state of step ", kSavedStep, " gives other bits"));
    }
    check_state(whole ? whole->state() : StateDict());
    return std::move(seen_);
  }

 private:
  void add_exchanged() {
    for (const UnitTime& unit : run_.exchanged()) {
      const std::string name = str(unit.after_update ? "values of " : "", unit.params.at(0));
      seen_.exchanged.push_back({name, unit.bytes});
    }
  }

  void check_step(const Values& values) {
    for (const UnitTime& unit : run_.exchanged()) {
      check_received(unit.bytes, " for " + unit.params.at(0));
      if (comm_.size() == 1 && unit.bytes.sent + unit.bytes.received > 0)
        add("ledger", "a single rank exchanges something");
    }
    check_ranks(values, "values");
  }

  // The state of all ranks is that of one rank that owns everything, and no rank keeps what another one keeps.
  void check_state(const StateDict& wanted) {
    const StateDict gathered = run_.shard().gather_optimizer(run_.ctx());
    const auto own = static_cast<double>(bytes_of(run_.shard().own_state()));
    double kept = 0;
    for (const double bytes : comm_.gather_numbers(std::span(&own, 1), "control")) {
      kept += bytes;
      seen_.distances["share"] = std::max(seen_.distances["share"], bytes);
    }
    seen_.distances["share"] *= comm_.size() / kept;
    if (comm_.rank() != 0) return;
    if (kept != static_cast<double>(bytes_of(wanted)))
      add("divided",
          str("the ranks keep ", kept, " bytes of state together, and the whole state has ", bytes_of(wanted)));
    seen_.kept = gathered.size();
    for (const auto& [name, t] : wanted) {
      const auto found = gathered.find(name);
      if (found == gathered.end() || found->second.shape() != t.shape()) {
        add("divided", str("the gathered state has no '", name, "' with the shape of the whole"));
      } else if (!s_.approximate &&
                 !same_bits({host_values(run_.ctx(), found->second)}, {host_values(run_.ctx(), t)})) {
        add("divided", str("the gathered state '", name, "' has other bits than the whole"));
      }
    }
  }

  ShardRun run_;
};

}  // namespace

Observation observe_shards(Communicator& comm, const Subject& subject) {
  return ShardCheck(comm, subject).all();
}

}  // namespace lmx::app::conformance
