// Gradient-sync strategies: the exchange between ranks after backward and before the update.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/batcher.h"
#include "lmx/codec.h"
#include "lmx/comm.h"
#include "lmx/loss.h"
#include "lmx/optim.h"
#include "lmx/parameters.h"

namespace lmx {

class SyncStrategy;
class ServerStrategy;
class ReplicaStrategy;
class ShardStrategy;

// How a strategy uses the key of a sampled softmax's candidates (StepPlan::sampler_key).
enum class CandidateKey : uint8_t {
  left,   // does not change it
  set,    // sets it
  needed  // sets it, and has no effect if the loss samples no candidates
};

// The kind of a rule's result.
enum class SyncResult : uint8_t {
  sum,        // their sum over ranks, exact or approximate
  direction,  // an update direction, such as signs. Its size does not depend on that of the gradients, so neither
              // clipping nor a loss scale is allowed for the rule's parameters
  update      // a direction that contains moments of earlier gradients, so the optimizer of these parameters must keep
              // no state. Tables with row-sparse gradients are not allowed
};

// The reports of a rule to its user. The defaults report nothing.
class LMX_API SyncReport {
 public:
  virtual ~SyncReport();
  // Warnings to print about settings that lose information. `loss_scaled`: see Exchanger::warnings().
  virtual std::vector<std::string> warnings(bool loss_scaled) const;
  // One line that is printed when a run starts ("14 seed groups of 4 or 5 ranks"); "" for none.
  virtual std::string describe(int ranks) const;
  // Quantisation error since the last call, by parameter.
  virtual std::map<std::string, CodecHealth> take_health();
  // take_values(): further values for a record of the metrics, since the last call. summary(): a line that is printed
  // when a run ends ("": none).
  virtual std::vector<std::pair<std::string, double>> take_values();
  virtual std::string summary() const;
};

struct SyncEnv;

// The work of one rule of `sync:` on the parameters that it matches. Each rank has its own object. It is either a
// SyncStrategy, whose ranks are in step, a ReplicaStrategy, whose ranks have values of their own
// (lmx/replica_strategy.h), or a ServerStrategy (lmx/param_server.h). A SyncStrategy may be a ShardStrategy, whose
// ranks divide the update (lmx/shard_strategy.h).
class LMX_API SyncRule : public SyncReport {
 public:
  using Factory = std::unique_ptr<SyncRule> (*)(const Node& config, const std::string& path, const SyncEnv& env);

  // Called before the forward pass with this rank's share of the step's batch, to choose candidates, rows, and
  // parameters to pull.
  virtual void begin_step(Context& ctx, std::span<const Batch> share, StepPlan& plan);
  // Whether begin_step() sets the rows of `param` for the loss (StepPlan::rows).
  virtual bool plans_rows(const std::string& param) const;
  virtual CandidateKey candidate_key() const;
  virtual SyncResult result() const;  // by default a sum
  virtual void after_step(Context& ctx);
  // Called before after_step() if the update is skipped (an overflow, a divergence): nothing of this step's gradients
  // may be added to later ones.
  virtual void discard();
  // From now on gradients are `factor` times as large, because a loss scale has changed. The strategy must multiply the
  // residuals of earlier gradients by `factor`. Not called if result() is no sum.
  virtual void rescale(double factor);
  // The state of this rank for a checkpoint. load(), which is collective, gets the states of all ranks that saved (of
  // those that resume, all empty, if no rank had one), in rank order; if as many ranks resume, those of other ranks may
  // be empty. UserError if this number of ranks cannot resume from them.
  virtual StateDict state() const;
  virtual void load(Context& ctx, const std::vector<StateDict>& ranks);
  // State that is equal on all ranks, which a checkpoint contains once. load_common() is collective, and every rank
  // gets the state, also if another number of ranks has saved it.
  virtual StateDict common_state() const;
  virtual void load_common(Context& ctx, const StateDict& state);
  // This object as one of these kinds; null if it is of another kind.
  virtual SyncStrategy* strategy() { return nullptr; }
  virtual ShardStrategy* shard() { return nullptr; }
  virtual ServerStrategy* server() { return nullptr; }
  virtual ReplicaStrategy* replica() { return nullptr; }
};

// The exchange of ranks that are in step: gradients are summed before every update, which all ranks then make alike.
class LMX_API SyncStrategy : public SyncRule {
 public:
  // Divides parameters into units; the gradients of a unit are exchanged together. `params` are in the order in which
  // backward finishes them, which is the reverse of their declaration. Default: each parameter separately.
  virtual std::vector<std::vector<std::string>> units(const std::vector<ParameterSpec>& params) const;
  // Replaces this rank's gradients of one unit by their sum over all ranks. Collective: all ranks call it for the same
  // units in the same order. It may run on a second thread while backward computes other parameters. A gradient may be
  // empty on a rank (no sequences); that rank still takes part. The result must not be written to. If a selected value
  // of any rank is not finite, the result of its parameter has such a value on every rank in this step: a run finds
  // overflows and divergence by it.
  virtual void reduce(Context& ctx, std::span<Var> unit) = 0;
  // After begin_step(): the rows of a parameter that this rank sends in this step, ascending; other rows count as zero.
  // For a dense gradient they are the same on all ranks. Null: all rows that backward has produced.
  virtual const std::vector<int32_t>* selected_rows(const std::string& param) const;
  SyncStrategy* strategy() final { return this; }
};

// Units of successive parameters: each has at least `megabytes` of bytes_of(), except the last one. A row-sparse
// parameter is a unit by itself.
LMX_API std::vector<std::vector<std::string>> buckets_of(const std::vector<ParameterSpec>& params, double megabytes,
                                                         const std::function<int64_t(const ParameterSpec&)>& bytes_of);

struct SyncEnv {
  std::string group;                  // the rule's key in `sync:`
  std::vector<ParameterSpec> params;  // the parameters that it matched, in order of declaration
  int rank = 0, ranks = 1;
  RandomKey key;               // of the run, specific to this rule
  int ranks_per_node = ranks;  // 0: nodes have different numbers of ranks
};
using SyncFactory = SyncRule::Factory;

}  // namespace lmx
