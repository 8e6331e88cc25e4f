// Top-k with error feedback (Stich et al. 2018), to start from: each rank sends the entries of a gradient that are largest,
// and keeps the rest for later steps. See lmx/feedback_strategy.h for what the base does, lmx/vectors.h for functions.
#include <cmath>

#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

// The keys of a rule `{params: ".*", strategy: @name@, ...}` in a recipe's `sync:`.
struct @Name@Config {
  double keep = 0.01;
  lmx::FeedbackConfig feedback;
  void fields(lmx::Fields& f) {
    f.field("keep", keep, "part of a gradient's entries that a rank sends in a step", {0, 1, true});
    feedback.fields(f);
  }
};

class @Name@ : public lmx::FeedbackStrategy {
 public:
  @Name@(const @Name@Config& c, const lmx::SyncEnv& env) : FeedbackStrategy(c.feedback, env), keep_(c.keep) {}

 private:
  // Returns the sum over ranks of what they send, and leaves in v what this rank keeps.
  lmx::Tensor exchange(lmx::Context& ctx, const Block& block, lmx::Tensor v) override {
    const auto k = static_cast<int64_t>(std::ceil(keep_ * static_cast<double>(block.size)));
    return lmx::gather_entries(ctx, lmx::take_largest(ctx, v, k), block.size, group());
  }
  double keep_;
};

LMX_PLUGIN(sync, @name@, @Name@Config, @Name@)
