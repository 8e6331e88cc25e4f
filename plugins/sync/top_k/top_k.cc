// The largest entries of each dense gradient, with error feedback (Aji and Heafield 2017, gradient dropping; Stich et
// al. 2018, mem-SGD with top-k).
#include <cmath>

#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct TopKConfig {
  double keep = 0.01;  // Aji and Heafield 2017: 99 % of the entries are dropped
  int64_t chunk = 0;
  FeedbackConfig feedback;
  void fields(Fields& f) {
    f.field("keep", keep, "part of a gradient's entries that a rank sends in a step", {0, 1, true});
    f.field("chunk", chunk, "choose from each so many successive entries separately; 0: from all of a gradient",
            {0, 1 << 30});
    feedback.fields(f);
  }
  void check(const std::string& where) const {
    if (chunk > 0 && chunk < kLeastChunk)
      throw UserError(str(where, ".chunk: ", chunk, " is less than ", kLeastChunk, "; give 0 or a larger chunk"));
  }
  static constexpr int64_t kLeastChunk = 64;
};

class TopK final : public FeedbackStrategy {
 public:
  TopK(const TopKConfig& config, const SyncEnv& env) : FeedbackStrategy(config.feedback, env), c_(config) {}

 private:
  Tensor exchange(Context& ctx, const Block& block, Tensor v) override {
    const int64_t of = c_.chunk == 0 ? block.size : c_.chunk;
    const auto k = static_cast<int64_t>(std::ceil(c_.keep * static_cast<double>(of)));
    return gather_entries(ctx, take_largest(ctx, v, k, c_.chunk), block.size, group());
  }
  TopKConfig c_;
};

}  // namespace

LMX_PLUGIN(sync, top_k, TopKConfig, TopK)
