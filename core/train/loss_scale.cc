#include "train/loss_scale.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "lmx/error.h"

namespace lmx {

void LossScaleConfig::fields(Fields& f) {
  f.choice("preset", preset, {"ott", "puri", "none"},
           "ott (128, factor 2, window 2000, at least 1e-4, of the sum: Ott 2018 and fairseq), puri (2^32, 2, 1000, at "
           "least 1, of the mean: Puri 2018's code), none (the scale stays 1)");
  f.choice(
      "loss", loss, {"preset", "sum", "mean"},
      "the loss that the scale multiplies: sum (over the tokens of the step), mean (over what the update averages), "
      "preset (the preset's)");
  f.field("init", init, "scale at the start; 0: the preset's", kNonNegative);
  f.field("factor", factor, "down by it at an overflow, up by it after `window` good updates; 0: the preset's",
          kNonNegative);
  f.field("window", window, "updates without an overflow before the scale rises; 0: the preset's", kNonNegative);
  f.field("min", min, "least scale; an overflow at it counts as divergence; 0: the preset's", kNonNegative);
}

LossScaleConfig LossScaleConfig::resolved() const {
  LossScaleConfig c = *this;
  const bool puri = preset == "puri", none = preset == "none";
  if (c.loss == "preset") c.loss = puri ? "mean" : "sum";
  if (c.init <= 0) c.init = none ? 1 : puri ? 0x1p32 : 128;
  if (c.factor <= 0) c.factor = 2;
  if (c.window <= 0) c.window = puri ? 1000 : 2000;
  if (c.min <= 0) c.min = puri || none ? 1 : 1e-4;
  return c;
}

LossScale::LossScale(const LossScaleConfig& config, const std::string& precision)
    : config_(config.resolved()), active_(precision == "fp16") {}

ScaleState LossScale::start() const {
  ScaleState state;
  state.scale = active_ ? config_.init : 1;
  return state;
}

// If no loss scale is active, backward starts from the gradient of the mean. A scale that was chosen for a mean exceeds
// the range of f16 if it multiplies the sum over 400,000 tokens. A scale that was chosen for a sum makes all values too
// small for f16 if it multiplies the mean.
double LossScale::seed(const ScaleState& state, double terms) const {
  if (!active_) return 1 / terms;
  return config_.loss == "mean" ? state.scale / terms : state.scale;
}

double LossScale::overflowed(ScaleState& state, int64_t step) const {
  state.good = 0;
  if (state.scale / config_.factor < config_.min) return 0;
  state.last_overflow = step;
  ++state.overflows;
  state.scale /= config_.factor;
  return 1 / config_.factor;
}

double LossScale::passed(ScaleState& state) const {
  if (!dynamic() || ++state.good < config_.window) return 1;
  state.good = 0;
  // Above this limit the scale itself would exceed the range of f32, in which backward starts.
  if (state.scale * config_.factor > 0x1p100) return 1;
  state.scale *= config_.factor;
  return config_.factor;
}

std::string census_text(const ScaleState& state) {
  std::vector<std::pair<int64_t, std::string>> most;
  for (const auto& [name, count] : state.census) most.emplace_back(-count, name);
  std::sort(most.begin(), most.end());
  std::string text = str(plural(state.overflows, "overflow"), ", the last at step ", state.last_overflow + 1,
                         ", loss scale now ", number_text(state.scale));
  for (size_t i = 0; i < most.size(); ++i) text += str(i ? ", " : ": ", most[i].second, " ", -most[i].first);
  return text;
}

}  // namespace lmx
