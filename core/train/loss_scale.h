// Dynamic loss scaling (Ott 2018, section 3; Puri 2018, section IV): the gradients in half precision are multiplied by
// `scale`. If they overflow, the update is skipped and the scale is reduced. After enough updates in a row without
// overflow, the scale is raised.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace lmx {

// State of the loss scale; saved in a checkpoint.
struct ScaleState {
  double scale = 0;                            // 0: not started
  int64_t good = 0;                            // good updates since the scale last changed
  int64_t last_overflow = -1;                  // step, 0-based
  int64_t overflows = 0;                       // number of overflows in the whole run
  std::map<std::string, int64_t> census = {};  // by parameter name: overflows in which its gradient was not finite
};

class LossScale {
 public:
  // Active only for precision fp16. For other precisions the scale is always 1.
  LossScale(const LossScaleConfig& config, const std::string& precision);
  bool active() const { return active_; }
  bool dynamic() const { return active_ && config_.preset != "none"; }
  ScaleState start() const;
  // The factor from which backward starts. The loss is summed over the step's tokens; `terms` divides the sum to get
  // the mean.
  double seed(const ScaleState& state, double terms) const;
  // The factor that turns the scaled gradients into those of the mean.
  double unscale(const ScaleState& state, double terms) const { return 1 / (seed(state, terms) * terms); }
  // Returns the factor by which the scale was multiplied; 0 if the scale would fall below its minimum, which is no
  // overflow but a divergence.
  double overflowed(ScaleState& state, int64_t step) const;
  double passed(ScaleState& state) const;
  const LossScaleConfig& config() const { return config_; }

 private:
  LossScaleConfig config_;  // resolved
  bool active_;
};

// "3 overflows, the last at step 17: softmax.weight 3, lstm.0.weight_hh 1".
std::string census_text(const ScaleState& state);

}  // namespace lmx
