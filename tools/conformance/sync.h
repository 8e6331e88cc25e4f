// The checks of sync strategies, as functions that every rank of a group calls and that return what they found. `lmx
// plugins check` prints the findings of virtual ranks; tests/sync also runs the checks on ranks that are processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "conformance/conformance.h"
#include "lmx/autograd.h"
#include "lmx/comm.h"
#include "lmx/context.h"
#include "lmx/row_sync.h"
#include "lmx/sync.h"
#include "sync/unit_queue.h"

namespace lmx::app::conformance {

// The exchange of one unit in one step.
struct UnitExchange {
  std::string name;  // the unit's first parameter
  UnitBytes bytes = {};
};

// The observations on one rank.
struct Observation {
  bool server = false;     // an asynchronous strategy, which has no reduce(): nothing was checked
  bool replica = false;    // a ReplicaStrategy: observe_replicas()
  bool shard = false;      // a ShardStrategy: observe_shards()
  bool direction = false;  // SyncRule::result(): the result has no sum to be compared with
  // The first finding of each check that failed.
  std::map<std::string, std::string> findings;
  std::map<std::string, double> distances;  // the measured distance of checks that compare with a bound
  size_t kept = 0;                          // tensors in the state
  std::vector<UnitExchange> exchanged;      // the units of all steps
  uint64_t digest = 0;  // of all results: equal for every kind of communicator with the same number of ranks

  void add(const std::string& check, const std::string& finding) { findings.emplace(check, finding); }
  // Adds what another rank or group observed. An earlier finding of the same check has priority.
  void merge(const Observation& other);
};

// Runs the checks "units", "ledger", "ranks", "determinism", "state", "rows" and "sum" over some steps.
Observation observe_steps(Communicator& comm, const Subject& subject);

// The exchange of these steps on a device that counts, as plans and estimates see it. Adds the differences from `seen`
// to its check "counted".
void observe_counted(Communicator& comm, const Subject& subject, Observation& seen);

// The checks "ledger", "ranks", "determinism", "state" and "rest" of a ReplicaStrategy over two rounds. observe_steps()
// calls it. On a device that counts, only what is exchanged is observed.
Observation observe_replicas(Communicator& comm, const Subject& subject);

// The checks "ledger", "ranks", "determinism", "update", "divided" and "state" of a ShardStrategy. observe_steps()
// calls it. On a device that counts, only what is exchanged is observed.
Observation observe_shards(Communicator& comm, const Subject& subject);

// The checks "discard", "rescale" and "mean" of the residual that a strategy keeps for later steps. If all steps have
// the same gradient, the mean result of a strategy that later sends what it left out converges to the sum. That of a
// strategy that scales the sum, or sends residuals twice, does not.
void observe_discard(Communicator& comm, const Subject& subject, Observation& seen);
void observe_rescale(Communicator& comm, const Subject& subject, Observation& seen);
void observe_mean(Communicator& comm, const Subject& subject, Observation& seen);
inline constexpr int kMeanSteps = 256;
inline constexpr double kMeanBound = 0.3;
// The check "overflow": an entry of one rank's gradient is not finite. Every rank sees it in the result, and after
// discard() the next step has the bits of a run without that step.
void observe_overflow(Communicator& comm, const Subject& subject, Observation& seen);

// The gradients of the ranks in the steps in which a sync strategy is checked, and the expected results. They are pure
// functions of rank, step and parameter, so that every rank can compute the gradients of all ranks.

inline constexpr int kSteps = 5, kSavedStep = 3;  // the state is saved before kSavedStep

// Returns tables with row-sparse gradients, a matrix, and vectors. `tiny` has fewer rows than the largest groups have
// ranks; `edge` has fewer columns than a vector of the CPU has lanes.
std::vector<ParameterSpec> parameters();

// A rank's gradient of a parameter.
struct Own {
  std::vector<int32_t> indices;  // sparse: with repetitions, in order of appearance
  std::vector<float> values;     // dense: all of them; sparse: one row per index; empty: no gradient
  std::vector<int64_t> pieces;   // sparse: rows of each piece
};
// Step 1: rank 1 has no gradients. Step 2: no rank uses a row of `emb`, and rows of `softmax` cancel. Step 4: zeros and
// negative zeros.
Own own_of(int rank, int step, const ParameterSpec& p);
// Replaces the gradient of `var` by `own` multiplied by `factor`.
void give(Context& ctx, Var& var, const Own& own, float factor = 1);

// By parameter and rank: the rows that SyncStrategy::selected_rows() returns. Parameters of which all rows are
// exchanged are absent.
using SelectedRows = std::map<std::string, std::vector<std::set<int32_t>>>;

// The sum over ranks of the rows that each rank has selected, with the shape of the parameter.
struct Sum {
  std::vector<double> sum, size;  // `size`: the sum of absolute values, which bounds the rounding error
  std::set<int32_t> rows;         // rows that any rank has; empty for a dense gradient of which all rows are exchanged
};
Sum sum_of(int ranks, int step, const ParameterSpec& p, const SelectedRows& selected);

// One rank of a group in which a sync strategy is checked.

using Values = std::vector<std::vector<float>>;  // dense values of each parameter
bool same_bits(const Values& a, const Values& b);
// Returns a hash of 53 bits, which a double represents exactly.
uint64_t digest(const Values& values);

// The context of a rank that computes on `device`.
Context context_of(Communicator& comm, Device device);

// Collective. The bytes that the ranks have sent and no rank has received, of all or else of those between nodes.
double unreceived(Communicator& comm, const UnitBytes& bytes);

// The checks that each rank makes in the steps of a strategy.
class RankChecks {
 protected:
  RankChecks(Communicator& comm, const Subject& s) : comm_(comm), s_(s) {}
  void add(const std::string& check, const std::string& finding) {
    seen_.add(check, str("rank ", comm_.rank(), " of ", comm_.size(), ", step ", step_, ": ", finding));
  }
  // All ranks together receive as many bytes as they send. `of`: " for UNIT". Collective.
  void check_received(const UnitBytes& bytes, const std::string& of) {
    if (const double lost = unreceived(comm_, bytes); lost != 0)
      add("ledger", str("the ranks have sent ", lost, " bytes", of, " that no rank received"));
  }
  // The values are those of rank 0. Collective.
  void check_ranks(const Values& values, const char* name) {
    const uint64_t bits = digest(values);
    seen_.digest = seen_.digest * 31 + bits;
    const auto own = static_cast<double>(bits);
    if (comm_.gather_numbers(std::span(&own, 1), "control")[0] != own)
      add("ranks", str("other ", name, " than rank 0"));
  }

  Communicator& comm_;
  const Subject& s_;
  Observation seen_;
  int step_ = 0;
};

// Returns the states of all ranks, as SyncRule::load() receives them from a checkpoint. Collective.
std::vector<StateDict> gather_states(Context& ctx, const StateDict& own);

// The gradients of a step: those of step `of` (see own_of()), multiplied by `factor`. If `spoiled` names a parameter,
// the first value of the last rank's gradient is `value`.
struct Given {
  int of = 0;
  float factor = 1;
  std::string spoiled = {};
  float value = 0;
};

// The strategy and the parameters of one rank.
class RankRun {
 public:
  RankRun(Communicator& comm, const Subject& s);

  bool server() { return rule_->server() != nullptr; }    // then strategy() must not be called
  bool replica() { return rule_->replica() != nullptr; }  // the same
  bool shard() { return rule_->shard() != nullptr; }      // the same
  bool direction() const { return rule_->result() != SyncResult::sum; }
  // parameters(), without tables if the strategy takes dense gradients alone.
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  SyncStrategy& strategy() { return *rule_->strategy(); }
  Context& ctx() { return ctx_; }
  const std::vector<std::vector<std::string>>& units() const { return units_; }

  // Runs begin_step() and reduce() of every unit. A step ends with after_step(), or with discard() and after_step() if
  // its update is left out.
  void reduce(int step) { reduce(step, {step, 1}); }
  void reduce(int step, const Given& given);
  void after_step() { rule_->after_step(ctx_); }
  void discard() { rule_->discard(); }
  void step(int step, const Given& given) { reduce(step, given), after_step(); }

  // The following functions describe the last reduce().
  const Values& values() const { return values_; }
  const Gradient& gradient(const std::string& name) const { return vars_.at(name).grad(); }
  const SelectedRows& selected() const { return selected_; }
  const std::vector<UnitExchange>& exchanged() const { return exchanged_; }

  // Returns the states of all ranks, as load() receives them from a checkpoint. Collective.
  std::vector<StateDict> gather_states() { return app::conformance::gather_states(ctx_, rule_->state()); }
  // A run that continues from the state of this one, of which a rank gets its own part, as ranks that are processes.
  // Collective.
  std::unique_ptr<RankRun> resumed(const Subject& s);
  size_t kept() const { return rule_->state().size() + rule_->common_state().size(); }  // tensors

 private:
  void post_unit(const Given& given, const std::vector<std::string>& names);
  void reduce_unit(const std::vector<ParameterSpec>& specs);
  SelectedRows gather_selected();
  std::vector<float> dense(const ParameterSpec& p);

  Communicator& comm_;
  Context ctx_;
  std::vector<ParameterSpec> specs_;
  std::unique_ptr<SyncRule> rule_;
  std::map<std::string, Var> vars_;
  std::vector<std::vector<std::string>> units_;
  Values values_;
  SelectedRows selected_;
  std::vector<UnitExchange> exchanged_;
  UnitQueue queue_;  // ends before what its jobs use
};

}  // namespace lmx::app::conformance
