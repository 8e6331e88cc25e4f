// Learning-rate schedules (`schedule:` of a recipe).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmx/api.h"
#include "lmx/config.h"

namespace lmx {

// The values on which a schedule may depend.
struct ScheduleState {
  int64_t update = 0;       // 0-based number of the update; steps without an update do not count
  int64_t epoch = 0;        // complete passes over the training data; steps without an update count
  int64_t total_steps = 0;  // train.steps, or epochs converted to steps
};

// Each rank has its own object, and all of them must give equal rates.
class LMX_API Schedule {
 public:
  using Factory = std::unique_ptr<Schedule> (*)(const Node& config, const std::string& path, double base_lr);

  virtual ~Schedule();
  // The learning rate of an update: finite, not negative, and a function of `s` and of what state() returns. Updates
  // may be asked for in any order.
  virtual double rate(const ScheduleState& s) const = 0;
  // Called after a validation with its perplexity, which may be infinite or NaN; may change the result of rate()
  // (halve_on_rise). Each value that it changes must be part of state().
  virtual void validated(double perplexity);
  // The state that a checkpoint stores, as numbers. Empty (default) for pure functions of ScheduleState. load()
  // restores the result of state(). UserError: another number of numbers, which another schedule has written.
  virtual std::vector<double> state() const;
  virtual void load(const std::vector<double>& state);
};

// `base_lr`: the learning rate of the optimizer (trait kLearningRate) times the factor of `lr_rule`.
using ScheduleFactory = Schedule::Factory;

// From `schedule:` of a recipe, by its key `name`: built in, or a plugin. Errors of a plugin name it.
LMX_API std::unique_ptr<Schedule> make_schedule(const Node& config, const std::string& path, double base_lr);
LMX_API Node full_schedule_config(const Node& config, const std::string& path);

}  // namespace lmx
