// `sync:` of a recipe: assigns parameters to strategies, and schedules the exchange of their gradients.
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

// `sync:` of a recipe: named rules {params: pattern, strategy: name, ...}. A parameter belongs to the first rule that
// matches it. The units of all rules are reduced in one fixed order, each as soon as its gradients are complete, in
// parallel with backward if the communicator supports that. UserError: a parameter without a rule, a rule without
// parameters, two rules that set the key of the candidates.
class SyncRules {
 public:
  // `all`: all parameters, and the key of all rules.
  SyncRules(const Node& sync, const std::string& path, const SyncEnv& all);
  ~SyncRules();
  SyncRules(const SyncRules&) = delete;
  void begin_step(Context& ctx, ParameterStore& params, std::span<const Batch> share, StepPlan& plan);
  // To be called once for each parameter and step, after its last use in the backward of the last sub-batch.
  void grad_ready(const Var& param);
  // Returns when every gradient is the sum over ranks. A parameter for which grad_ready() was not called takes part
  // with its current gradient.
  void finish();
  void after_step(Context& ctx);
  void discard();
  void rescale(double factor);
  // The key of the candidates that `rank` samples in a step, if a rule sets it; else `otherwise`.
  RandomKey candidate_key(int rank, int64_t step, RandomKey otherwise) const;
  StateDict state() const;
  void load(Context& ctx, const std::vector<StateDict>& ranks);
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
  // The servers of all rules; empty if ranks are synchronous.
  const std::vector<ServerStrategy*>& servers() const;
  // UserError also if some rules are asynchronous and others are not, or if their clocks differ.
  static Node full_config(const Node& sync, const std::string& path);
  static bool asynchronous(const Node& sync, const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
