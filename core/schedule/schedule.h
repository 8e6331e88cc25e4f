// Learning-rate schedules, and the rules that scale the learning rate with the batch or the number of nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// The values on which a schedule may depend.
struct ScheduleState {
  int64_t update = 0;       // 0-based number of the update; steps without an update do not count
  int64_t epoch = 0;        // complete passes over the training data; steps without an update count
  int64_t total_steps = 0;  // train.steps, or epochs converted to steps
};

class Schedule {
 public:
  virtual ~Schedule();
  virtual double rate(const ScheduleState& s) const = 0;
  // Called after a validation with its perplexity; may change the result of rate() (halve_on_rise).
  virtual void validated(double perplexity);
  // The state that a checkpoint stores, as numbers. Empty for pure functions of ScheduleState.
  virtual std::vector<double> state() const;
  virtual void load(const std::vector<double>& state);
};

// Makes the schedule of a recipe by its `name`: constant, linear (to zero over N steps, independent of when the run
// stops), inverse_sqrt, epoch_decay, halve_on_rise, cosine. `base_lr` is optimizer.lr after lr_rule.
std::unique_ptr<Schedule> make_schedule(const Node& config, const std::string& path, double base_lr);
Node full_schedule_config(const Node& config, const std::string& path);

// `lr_rule:` of a recipe: fixed, linear, sqrt (of batch.global / reference_batch), log_nodes (Patwary: lr ln(nodes), at
// least 1 unless strict). The factor is printed at the start of a run and recorded.
struct LrRule {
  std::string name = "fixed";
  int64_t reference_batch = 0;  // linear and sqrt: the batch size for which optimizer.lr was tuned
  int64_t gpus_per_node = 8;    // log_nodes: there are ranks / gpus_per_node nodes, rounded up
  bool strict = false;          // log_nodes: ln(nodes) as in the paper, 0 on one node
  void fields(Fields& f);
  double factor(int64_t global_batch, int64_t ranks) const;
};

}  // namespace lmx
