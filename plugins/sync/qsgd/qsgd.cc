// QSGD (Alistarh et al. 2017): each rank rounds its gradient at random to few levels, so that the expected value is the
// gradient. Codes have a fixed number of bits; the paper's Elias codes are not used.
#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct QsgdConfig {
  int64_t bits = 4, bucket = 512;  // the paper's experiments
  std::string norm = "l2";         // section 3.1
  // As published: no error feedback, and gradients of less than 10,000 entries are not rounded.
  FeedbackConfig feedback{.feedback = false, .min_size = 10000};
  void fields(Fields& f) {
    f.field("bits", bits, "bits of an entry, one of them for the sign", {2, 8});
    f.field("bucket", bucket, "successive entries that share a norm", {1, 1 << 30});
    f.choice("norm", norm, {"l2", "max"}, "norm of a bucket: Euclidean, or its largest absolute value");
    feedback.fields(f);
  }
};

class Qsgd final : public FeedbackStrategy {
 public:
  Qsgd(const QsgdConfig& c, const SyncEnv& env)
      : FeedbackStrategy(c.feedback, env), config_{c.bits, c.bucket, c.norm == "max"} {}

 private:
  Tensor exchange(Context& ctx, const Block& block, Tensor v) override {
    const Quantised own = quantise(ctx, config_, v, key(block).fold(static_cast<uint64_t>(ctx.rank)));
    if (feedback()) add_quantised(ctx, config_, own, -1, v);
    return gather_quantised(ctx, config_, own, block.size, group());
  }
  QuantiserConfig config_;
};

}  // namespace

LMX_PLUGIN(sync, qsgd, QsgdConfig, Qsgd)
