// Dynamic loss scaling (Ott 2018, section 3; Puri 2018, section IV): gradients go through half precision `scale` times
// as large. An overflow leaves the update out and lowers the scale; enough good updates in a row raise it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace lmx::train {

// Saved with a checkpoint.
struct ScaleState {
  double scale = 0;                            // 0: not started
  int64_t good = 0;                            // updates since the scale last changed
  int64_t last_overflow = -1;                  // step, 0-based
  int64_t overflows = 0;                       // of the whole run
  std::map<std::string, int64_t> census = {};  // overflows in which a parameter's gradient was not finite, by its name
};

class LossScale {
 public:
  // Of precision fp16; of others the scale is 1 and nothing is done.
  LossScale(const LossScaleConfig& config, const std::string& precision);
  bool active() const { return active_; }
  bool dynamic() const { return active_ && config_.preset != "none"; }
  ScaleState start() const;
  // Backward starts from it; the loss is summed over the step's tokens, and its mean divides by `terms`.
  double seed(const ScaleState& state, double terms) const;
  // From the gradients to those of the mean.
  double unscale(const ScaleState& state, double terms) const { return 1 / (seed(state, terms) * terms); }
  // Returns what the scale was multiplied by; 0 where it would fall below the least.
  double overflowed(ScaleState& state, int64_t step) const;
  double passed(ScaleState& state) const;
  const LossScaleConfig& config() const { return config_; }

 private:
  LossScaleConfig config_;  // resolved
  bool active_;
};

// Names of the parameters whose gradients, coalesced, hold a value that is not finite.
std::vector<std::string> overflowed_tensors(const ParameterStore& params);

// "3 overflows, the last at step 17: softmax.weight 3, lstm.0.weight_hh 1".
std::string census_text(const ScaleState& state);

}  // namespace lmx::train
