// Deep gradient compression (Lin et al. 2018): top-k with error feedback, where each rank accumulates velocities
// instead of gradients (momentum correction), clears them where it has sent (momentum factor masking), clips its
// gradients before it accumulates them, and sends more in the first steps (warm-up).
#include <cmath>
#include <numeric>

#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct DgcConfig {
  double keep = 0.001, clip = 0;
  int64_t warmup = 0;
  FeedbackConfig feedback{.momentum = 0.9};
  void fields(Fields& f) {
    f.field("keep", keep, "part of a gradient's entries that a rank sends in a step after the warm-up", {0, 1, true});
    f.field("warmup", warmup, "steps in which the part decreases, in four stages; 0: none", kNonNegative);
    f.field("momentum", feedback.momentum, "of the velocities; the recipe's optimizer needs none", {0, 1, false});
    f.field("clip", clip,
            "norm of a whole gradient; a rank's is limited to it divided by the root of the ranks; 0: none",
            kNonNegative);
    f.field("min_size", feedback.min_size, "dense gradients with fewer elements are summed exactly", kNonNegative);
  }
};

class Dgc final : public FeedbackStrategy {
 public:
  Dgc(const DgcConfig& config, const SyncEnv& env) : FeedbackStrategy(config.feedback, env), c_(config) {}
  void reduce(Context& ctx, std::span<Var> unit) override {
    for (Var& p : unit)
      if (c_.clip > 0 && p.grad().dense.defined()) clip(ctx, p.grad().dense);
    FeedbackStrategy::reduce(ctx, unit);
  }
  std::vector<std::string> warnings(bool loss_scaled) const override {
    if (c_.clip == 0 || !loss_scaled) return {};
    return {str("sync.", group(), ".clip limits gradients that the loss scale has multiplied; give clip: 0 or bf16")};
  }

 private:
  void clip(Context& ctx, Tensor& gradient) const {
    const auto squares = ctx.read<double>(block_squares(ctx, std::span(&gradient, 1)));
    const double norm = std::sqrt(std::accumulate(squares.get().begin(), squares.get().end(), 0.0)),
                 most = c_.clip / std::sqrt(ctx.comm->size());
    if (norm > most) gradient = scaled(ctx, gradient, static_cast<float>(most / norm));
  }
  // 0.25, 0.0625, ... for the published part of 0.001.
  double keep(int64_t step) const {
    constexpr int kStages = 4;
    if (step >= c_.warmup) return c_.keep;
    return std::pow(c_.keep, static_cast<double>(step * kStages / c_.warmup + 1) / (kStages + 1));
  }
  Tensor exchange(Context& ctx, const Block& block, Tensor v) override {
    const auto k = static_cast<int64_t>(std::ceil(keep(block.step) * static_cast<double>(block.size)));
    return gather_entries(ctx, take_largest(ctx, v, k), block.size, group());
  }
  DgcConfig c_;
};

}  // namespace

LMX_PLUGIN(sync, dgc, DgcConfig, Dgc)
