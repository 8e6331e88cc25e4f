// The parameters of a rank whose values differ from those of the others between synchronisations
// (lmx/replica_strategy.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lmx/replica_strategy.h"
#include "recipe/exchanger.h"
#include "sync/unit_queue.h"

namespace lmx {

// The rank whose state `rank` of `ranks` continues with, if `saved` ranks saved theirs.
inline size_t saved_rank(int rank, size_t saved, int ranks) {
  return static_cast<size_t>(rank) * saved / static_cast<size_t>(ranks);
}

std::set<std::string> params_of(const std::vector<const BoundRule*>& rules);

// The fragments of all rules, the exchanges whose results are not merged yet, and this rank's optimizer.
class Replicas {
 public:
  // `shared`: the anchors, which the ranks of a process share. `own`: this rank's values, equal to the anchors at
  // first. Other parameters than those of the rules are ignored. `alone`: a step exchanges nothing else, so exchanges
  // with a delay may run in parallel with steps.
  Replicas(std::vector<const BoundRule*> rules, ParameterStore& shared, const ParameterStore& own,
           std::unique_ptr<Optimizer> optimizer, bool alone);
  ParameterStore& params() { return own_; }  // this rank's values and gradients of the parameters of the rules
  // Updates this rank's values with its gradients, which must be coalesced. `measure`: of params().
  void update(Context& ctx, const GradientMeasure& measure, double lr, int64_t number);
  // Whether after_step(step) exchanges or merges something; equal on all ranks. `last`: the last step of the run.
  bool due(int64_t step, int64_t last) const;
  // Waits for the exchanges that run in parallel with steps. To be called before this thread uses the communicator, and
  // before every function below but after_step().
  void finish_exchanges();
  // After step number `step`, counted from 1, whether or not its update was made: merges, then exchanges what is due.
  // An exchange with a delay begins here, and may run in parallel with the next steps. After the last step, all results
  // are merged. Collective if due(): `meet` is called first, where the ranks wait for each other, so its time counts as
  // that of an exchange.
  void after_step(Context& ctx, int64_t step, int64_t last, const std::function<void()>& meet = {});
  // Whether an exchange may run in parallel with steps now, so that only its thread may use the communicator.
  bool exchanging() const { return queue_ && !queue_->drained(); }
  // The times of exchanges since the last call; see Exchanger::take_times().
  CommTimes take_times() { return queue_ ? queue_->take_times() : CommTimes{}; }
  // Collective: if ranks gossip, sets the shared anchors to the mean of those of the ranks.
  void publish(Context& ctx);
  // Collective: exchanges and merges every fragment. Returns what each one has exchanged.
  std::vector<UnitTime> synchronise(Context& ctx);
  // The steps after the last exchange of any fragment, of a run of `last` steps: they do not change its result.
  int64_t unused_steps(int64_t last) const;

  // This rank's values of the parameters in which they may differ from the anchors, by name.
  StateDict values() const;
  // For checkpoints: the state of this rank: its optimizer, its values where they differ from the anchors, what the
  // strategies keep for each fragment, and results that are not merged.
  StateDict state() const;
  // After the anchors were loaded. `ranks`: the states of all ranks that saved; the optimizer is that of saved_rank().
  // UserError: their number has changed, and their values differed.
  void load(Context& ctx, const std::vector<StateDict>& ranks);

 private:
  struct Part {
    const BoundRule* rule;
    Fragment fragment;  // without values; with its round and with what the strategy keeps
    Rhythm rhythm;
    bool exchanged = false;  // an exchange has begun whose result is not merged yet
    Tensor received = {};    // its result
    int64_t merge_at = 0;    // the step after which it is merged
    bool at_anchor = true;   // this rank's values are the anchor
    Tensor anchor = {};      // of this rank alone, if ranks gossip; undefined: the shared one
    bool published = true;   // the shared anchor is the mean of the ranks' anchors
  };
  static bool exchanges(const Part& part, int64_t step);
  static bool merges(const Part& part, int64_t step, int64_t last);
  template <class Body>
  static auto call(const Part& part, const char* function, Body&& body);
  bool beside(const Context& ctx, const Part& part) const;
  UnitQueue& queue(const Context& ctx);
  std::string name_of(const Part& part) const;
  Fragment with_values(Context& ctx, const Part& part) const;
  void exchange(Context& ctx, Part& part, int64_t round);
  void merge(Context& ctx, Part& part);
  void share(Context& ctx, const Tensor& anchor, const Fragment& f);
  void load_values(Context& ctx, Part& part, const StateDict& own);
  void load_kept(Context& ctx, Part& part, const std::vector<StateDict>& ranks);

  std::vector<const BoundRule*> rules_;
  std::vector<Part> parts_;
  ParameterStore& shared_;
  ParameterStore own_;
  std::unique_ptr<Optimizer> optimizer_;
  bool alone_;
  std::unique_ptr<UnitQueue> queue_;  // of exchanges; null before the first one
};

}  // namespace lmx
