// The exchange of a rank's gradients: one rule synchronises each parameter, and the units of all rules that sum
// gradients are reduced in one fixed order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/sync.h"
#include "sync/unit_queue.h"

namespace lmx {

struct PluginInfo;

// A rule of `sync:` with the parameters that it synchronises.
struct BoundRule {
  std::string name;  // of the rule: it begins the names of its records and of its state
  std::vector<ParameterSpec> params;
  const PluginInfo* plugin;  // for error messages
  std::unique_ptr<SyncRule> rule;
};

// Reduces the units of all rules, each as soon as its gradients are complete, in parallel with backward if the
// communicator supports that.
class Exchanger {
 public:
  // `params`: all parameters in the order of their declaration; backward finishes them in about the reverse order. A
  // parameter has at most one rule. `path`: of the rules, for error messages. UserError: two rules that set the key of
  // the candidates.
  Exchanger(std::vector<BoundRule> rules, const std::vector<ParameterSpec>& params, int ranks, std::string path);
  ~Exchanger();
  Exchanger(const Exchanger&) = delete;
  void begin_step(Context& ctx, ParameterStore& params, std::span<const Batch> share, StepPlan& plan);
  // To be called once for each parameter and step, after its last use in the backward of the last sub-batch.
  void grad_ready(const Var& param);
  // Returns when every gradient is the sum over ranks, except those of a ReplicaStrategy. A parameter for which
  // grad_ready() was not called takes part with its current gradient.
  void finish();
  // After the update: sends the values of the parameters whose update ranks have divided. Collective.
  void publish();
  void after_step(Context& ctx);
  void discard();
  void rescale(double factor);
  // The key of the candidates that `rank` samples in a step, if a rule sets it; else `otherwise`.
  RandomKey candidate_key(int rank, int64_t step, RandomKey otherwise) const;
  StateDict state() const;
  void load(Context& ctx, const std::vector<StateDict>& ranks);
  StateDict common_state() const;  // equal on all ranks
  void load_common(Context& ctx, const StateDict& state);
  // On a device with a stream for exchanges, times are those of the device. They are complete when the host has waited
  // for the device after finish().
  CommTimes take_times();                  // since the last call
  std::vector<UnitTime> timeline() const;  // of the last step, in the order of the exchange
  std::map<std::string, CodecHealth> take_health();
  std::vector<std::pair<std::string, double>> take_values();  // "<rule>/<name>"
  std::vector<std::string> describe(int ranks) const;         // lines to print when a run starts
  std::vector<std::string> summary() const;                   // lines to print when a run ends
  // Warnings to print about settings of the rules that lose information. `loss_scaled`: the loss is multiplied by a
  // scale, so that small gradients survive half precision.
  std::vector<std::string> warnings(bool loss_scaled) const;
  // UserError: a rule whose only purpose is the key of candidates, with a loss that samples none; a rule that selects
  // the rows of the softmax's weight, with a loss that has its own settings for them.
  void check_loss(const Loss& loss) const;
  // UserError: a rule whose result is a direction, with clipping of its parameters or with a loss scale; a rule whose
  // result is an update, with an optimizer that keeps a state.
  void check_directions(const std::vector<ClipRule>& clip, bool loss_scaled, const Optimizer& optimizer) const;
  // UserError: a rule of `sync`, the recipe's, can only be planned (ShardStrategy::stage()).
  void check_run(const Node& sync) const;
  // UserError: ranks with their own values, more than the sequences of a batch.
  void check_batch(int64_t sequences) const;
  // The servers of all rules, the rules of ranks with own values, and the rules of ranks that divide the update; empty
  // if there are none.
  const std::vector<ServerStrategy*>& servers() const;
  const std::vector<const BoundRule*>& replicas() const;
  bool sums() const { return !units_.empty(); }  // whether ranks sum the gradients of any parameter in each step
  const std::vector<ShardStrategy*>& shards() const;

 private:
  struct Unit {
    const BoundRule* rule;
    std::vector<std::string> names;
    size_t missing = 0;  // gradients of this step that are not complete yet
    UnitQueue::Moment ready = {};
    UnitBytes bytes = {};  // of this step
    double cpu = 0;        // seconds of its exchange in this step
  };
  void add_units(const BoundRule& rule);
  void order_units(const std::vector<ParameterSpec>& params);
  void post_ready();
  std::vector<Tensor> gradients(const Unit& unit) const;
  template <class Body>
  void exchange(Unit& unit, const char* function, Body&& body);
  void reduce(Unit& unit);

  const std::vector<BoundRule> rules_;  // in the recipe's order
  const int ranks_;
  const std::string path_;
  std::vector<ServerStrategy*> servers_;
  std::vector<const BoundRule*> replicas_;
  std::vector<ShardStrategy*> shards_;
  std::vector<Unit> units_, published_;
  std::map<std::string, size_t> unit_of_;  // by parameter
  size_t next_ = 0;                        // the first unit that has not been posted in this step
  Context ctx_;                            // of the step, for units
  ParameterStore* params_ = nullptr;
  std::unique_ptr<UnitQueue> queue_;
};

}  // namespace lmx
