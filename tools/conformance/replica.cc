// The checks of strategies whose ranks have their own values between synchronisations.
#include <algorithm>
#include <cmath>

#include "backend/cuda.h"
#include "conformance/sync.h"
#include "train/replicas.h"

namespace lmx::app::conformance {
namespace {

// The values of one rank and their synchronisation. Instead of an update, the values change by random numbers.
class ReplicaRun {
 public:
  ReplicaRun(Communicator& comm, const Subject& s)
      : comm_(comm), ctx_(context_of(comm, s.device)), specs_(parameters()) {
    const SyncEnv env{"check", specs_, ctx_.rank, ctx_.ranks, RandomKey(3), comm.nodes().per_node()};
    rule_ = {"check", specs_, &s.plugin, create<SyncFactory>(s.plugin, s.config, "sync.check", env)};
    anchors_ = comm.once<std::shared_ptr<ParameterStore>>([&] {
      auto all = std::make_shared<ParameterStore>();
      for (ParameterSpec spec : specs_) all->add(ctx_, spec, RandomKey(5));
      return all;
    });
    own_ = anchors_->copy(ctx_);
    Node sgd = Node::map();
    sgd.set("name", Node::string("sgd"));
    replicas_ = std::make_unique<Replicas>(std::vector<const BoundRule*>{&rule_}, *anchors_, own_,
                                           make_optimizer(sgd, "optimizer"), true);
  }
  Replicas& replicas() { return *replicas_; }
  Context& ctx() { return ctx_; }

  // The largest of each number over all fragments.
  Rhythm slowest() const {
    Rhythm most;
    const auto fragments = static_cast<int64_t>(rule_.rule->replica()->fragments().size());
    for (int64_t f = 0; f < fragments; ++f) {
      const Rhythm r = rule_.rule->replica()->rhythm(f);
      most = {std::max(most.period, r.period), std::max(most.offset, r.offset), std::max(most.delay, r.delay)};
    }
    return most;
  }

  // With exchanges that end in this step: several runs use the communicator, and so do the checks.
  void after_step(int64_t step, int64_t last) {
    replicas_->after_step(ctx_, step, last);
    replicas_->finish_exchanges();
  }

  void change(int64_t step) {
    if (ctx_.device.counts) return;
    for (const ParameterSpec& spec : specs_) {
      const RandomKey key =
          RandomKey(11).fold(spec.name).fold(static_cast<uint64_t>(step)).fold(static_cast<uint64_t>(ctx_.rank));
      std::vector<float> values = host_values(own_, spec.name);
      for (size_t i = 0; i < values.size(); ++i) values[i] += 0.01f * static_cast<float>(key.normal(i));
      own_.at(spec.name).value().copy_from(ctx_.upload(Tensor::from<float>(ctx_.host, spec.shape, values)));
      own_.at(spec.name).changed();
    }
  }

  // Those that validations use. Collective.
  Values anchors() {
    replicas_->publish(ctx_);
    return values_of(*anchors_);
  }
  Values own() const { return values_of(own_); }

  // A run that begins with the state of this one. Collective.
  std::unique_ptr<ReplicaRun> resumed(const Subject& s) {
    StateDict state = replicas_->state();
    state.merge(rule_.rule->state());
    auto other = std::make_unique<ReplicaRun>(comm_, s);
    comm_.once<int>([&] {
      for (const ParameterSpec& spec : specs_)
        other->anchors_->at(spec.name).value().copy_from(anchors_->at(spec.name).value());
      return 0;
    });
    other->rule_.rule->load_common(other->ctx_, on_host(rule_.rule->common_state()));
    std::vector<StateDict> all(static_cast<size_t>(ctx_.ranks));
    all[static_cast<size_t>(ctx_.rank)] = on_host(state);
    other->replicas_->load(other->ctx_, all);
    std::erase_if(all[static_cast<size_t>(ctx_.rank)], [](const auto& entry) { return entry.first[0] == '@'; });
    other->rule_.rule->load(other->ctx_, all);
    return other;
  }

 private:
  StateDict on_host(const StateDict& state) const {
    StateDict all;
    for (const auto& [name, t] : state) all.emplace(name, copy_to(t, ctx_.host));
    return all;
  }
  std::vector<float> host_values(const ParameterStore& params, const std::string& name) const {
    const Tensor here = copy_to(params.at(name).value(), ctx_.host);
    const auto values = std::as_const(here).values<float>();
    return {values.begin(), values.end()};
  }
  Values values_of(const ParameterStore& params) const {
    Values all;
    for (const ParameterSpec& spec : specs_) all.push_back(host_values(params, spec.name));
    return all;
  }

  Communicator& comm_;
  Context ctx_;
  std::vector<ParameterSpec> specs_;
  BoundRule rule_;
  std::shared_ptr<ParameterStore> anchors_;
  ParameterStore own_;
  std::unique_ptr<Replicas> replicas_;
};

class ReplicaCheck : RankChecks {
 public:
  ReplicaCheck(Communicator& comm, const Subject& s) : RankChecks(comm, s), run_(comm, s) { seen_.replica = true; }

  Observation all() {
    if (s_.device.counts) return rounds(nullptr);
    check_rest();
    ReplicaRun again(comm_, s_);
    return rounds(&again);
  }

 private:
  // Two exchanges of each fragment. The state is saved while the first result of the last fragment waits to be merged,
  // or after the values have changed again.
  Observation rounds(ReplicaRun* again) {
    const Rhythm r = run_.slowest();
    const int64_t first = r.period + r.offset, save = r.delay > 0 ? first : first + 1,
                  last = first + r.period + r.delay;
    std::unique_ptr<ReplicaRun> resumed;
    for (step_ = 1; step_ <= last; ++step_) {
      const bool due = run_.replicas().due(step_, last), saved = again && step_ == save;
      for (ReplicaRun* run : {&run_, again, resumed.get()})
        if (run && (due || saved)) run->change(step_);
      if (due) {
        after_step(last, again, resumed.get());
      } else {
        for (ReplicaRun* run : {&run_, again, resumed.get()})
          if (run) run->after_step(step_, last);
      }
      if (saved) resumed = run_.resumed(s_);
    }
    return std::move(seen_);
  }

  void after_step(int64_t last, ReplicaRun* again, ReplicaRun* resumed) {
    UnitExchange exchange{str("step ", step_), {}};
    const size_t entered = comm_.ledger().size();
    run_.after_step(step_, last);
    exchange.bytes.add(comm_.ledger(), entered);
    check_received(exchange.bytes, "");
    if (comm_.size() == 1 && exchange.bytes.sent + exchange.bytes.received > 0)
      add("ledger", "a single rank exchanges something");
    seen_.exchanged.push_back(std::move(exchange));
    if (!again) return;
    const Values own = run_.own(), anchors = run_.anchors();
    check_ranks(anchors, "anchors");
    seen_.digest = seen_.digest * 31 + digest(own);
    for (ReplicaRun* run : {again, resumed}) {
      if (!run) continue;
      run->after_step(step_, last);
      if (!same_bits(run->own(), own) || !same_bits(run->anchors(), anchors))
        add(run == again ? "determinism" : "state",
            run == again ? "a second run gives other bits" : "a run that loads a saved state gives other bits");
    }
  }

  // Equal except for the rounding of a mean.
  static bool near(const Values& a, const Values& b) {
    constexpr float kRounding = 1e-6f;
    for (size_t i = 0; i < b.size(); ++i)
      for (size_t k = 0; k < b[i].size(); ++k)
        if (!(std::abs(a[i][k] - b[i][k]) <= kRounding * std::abs(b[i][k]))) return false;
    return true;
  }

  void check_rest() {
    ReplicaRun run(comm_, s_);
    const Values before = run.own();
    run.replicas().synchronise(run.ctx());
    if (!near(run.own(), before) || !near(run.anchors(), before))
      add("rest", "an exchange changes values that no rank has changed");
  }

  ReplicaRun run_;
};

}  // namespace

Observation observe_replicas(Communicator& comm, const Subject& subject) {
  return ReplicaCheck(comm, subject).all();
}

}  // namespace lmx::app::conformance
