// Learning-rate schedules and the rules that scale the rate with the batch or the nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// What a schedule may look at.
struct ScheduleState {
  int64_t update = 0;       // 0-based: the update that the rate is for. Steps without an update do not count
  int64_t epoch = 0;        // whole passes over the training data, made by steps with an update and without
  int64_t total_steps = 0;  // train.steps, after epochs are counted in steps
};

class Schedule {
 public:
  virtual ~Schedule();
  virtual double rate(const ScheduleState& s) const = 0;
  // After a validation with this perplexity; changes what rate() gives (halve_on_rise).
  virtual void validated(double perplexity);
  // The state that a checkpoint keeps, as numbers (empty for pure functions of ScheduleState).
  virtual std::vector<double> state() const;
  virtual void load(const std::vector<double>& state);
};

// From `schedule:` of a recipe, by its key `name`: constant, linear (to zero over N, independent of the stop),
// inverse_sqrt, epoch_decay, halve_on_rise, cosine. `base_lr` is optimizer.lr after the batch rule.
std::unique_ptr<Schedule> make_schedule(const Node& config, const std::string& path, double base_lr);
Node full_schedule_config(const Node& config, const std::string& path);

// `lr_rule:` of a recipe: fixed, linear, sqrt (of batch.global / reference_batch), log_nodes (Patwary: lr ln(nodes),
// at least 1 unless strict). The factor is printed at start and recorded.
struct LrRule {
  std::string name = "fixed";
  int64_t reference_batch = 0;  // linear and sqrt: the batch for which optimizer.lr was found
  int64_t gpus_per_node = 8;    // log_nodes: ranks / gpus_per_node nodes
  bool strict = false;          // log_nodes: ln(nodes) as printed, 0 on one node
  void fields(Fields& f);
  double factor(int64_t global_batch, int64_t ranks) const;
};

}  // namespace lmx
