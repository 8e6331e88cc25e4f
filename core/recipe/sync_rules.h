// `sync:` of a recipe: which strategy serves which parameters, and when their gradients travel.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/sync.h"
#include "sync/unit_queue.h"

namespace lmx {

// `sync:` of a recipe: rules by name, each {params: pattern, strategy: name, ...}; the first match wins. Runs the units
// of all rules in one fixed order, each as soon as its gradients are complete, beside backward where the communicator
// can. UserError: an uncovered parameter, a rule that matches nothing, two rules that set the candidates' key.
class SyncRules {
 public:
  SyncRules(const Node& sync, const std::string& path, const std::vector<ParameterSpec>& params, int rank, int ranks,
            RandomKey key);
  ~SyncRules();
  SyncRules(const SyncRules&) = delete;
  void begin_step(Context& ctx, ParameterStore& params, std::span<const Batch> share, StepPlan& plan);
  // Once per parameter and step, after its last use in the last sub-batch's backward.
  void grad_ready(const Var& param);
  // Returns when every gradient is the sum over ranks. Parameters that never became ready take part with what they
  // have.
  void finish();
  bool owns_update(const Var& param) const;
  void after_step(Context& ctx);
  void discard();
  void rescale(double factor);
  // By the strategies' expected_bytes() where all ranks touch as many rows; in the order in which units travel. Empty
  // for one rank and for asynchronous ones. `rows` is asked for every parameter.
  std::vector<UnitPlan> plan(const std::vector<ParameterSpec>& params,
                             const std::function<TableRows(const ParameterSpec&)>& rows) const;
  bool replicated() const;         // of all rules
  int64_t candidate_sets() const;  // that the ranks draw in a step, as the rule says which decides about candidates
  StateDict state() const;
  void load(Context& ctx, const std::vector<StateDict>& ranks);
  CommTimes take_times();                         // since the last call
  const std::vector<UnitTime>& timeline() const;  // of the last step, in the order in which units travel
  std::map<std::string, CodecHealth> take_health();
  std::vector<std::pair<std::string, double>> take_values();  // "<rule>/<name>"
  std::vector<std::string> describe(int ranks) const;         // lines for people
  std::vector<std::string> summary() const;                   // the same when a run ends
  // Lines for people about settings of the rules that lose information. `loss_scaled`: the loss is multiplied by a
  // scale, so that small gradients survive half precision.
  std::vector<std::string> warnings(bool loss_scaled) const;
  // SyncStrategy::pair_bytes() of the rule that keeps most.
  int64_t pair_bytes() const;
  // UserError: a rule that decides about candidates alone, and a loss that draws none; a rule that plans the rows of
  // the softmax's weight, and a loss with settings of its own for them.
  void check_loss(const Loss& loss) const;
  // Those of all rules, or empty where ranks go in step.
  const std::vector<ServerStrategy*>& servers() const;
  // UserError as well: rules of which some are asynchronous and some are not, or whose clocks differ.
  static Node full_config(const Node& sync, const std::string& path);
  static bool asynchronous(const Node& sync, const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
