// Random entries of each dense gradient, with error feedback (Stich et al. 2018, mem-SGD with random-k). All ranks
// choose the same entries, so that no indices are sent and values are summed by all_reduce.
#include <cmath>

#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct RandomKConfig {
  double keep = 0.01;  // that of top_k; Stich et al. 2018 set the number of entries for each problem
  FeedbackConfig feedback;
  void fields(Fields& f) {
    f.field("keep", keep, "part of a gradient's entries that ranks exchange in a step", {0, 1, true});
    feedback.fields(f);
  }
};

class RandomK final : public FeedbackStrategy {
 public:
  RandomK(const RandomKConfig& config, const SyncEnv& env)
      : FeedbackStrategy(config.feedback, env), keep_(config.keep) {}

 private:
  Tensor exchange(Context& ctx, const Block& block, Tensor v) override {
    const auto k = static_cast<int64_t>(std::ceil(keep_ * static_cast<double>(block.size)));
    Entries chosen = take_random(ctx, v, k, key(block));
    chosen.values = ctx.comm->all_reduce(chosen.values, group());
    return ctx.comm->once_tensor(MemClass::communication, [&] { return spread_entries(ctx, chosen, block.size); });
  }
  double keep_;
};

}  // namespace

LMX_PLUGIN(sync, random_k, RandomKConfig, RandomK)
