// signSGD with majority vote (Bernstein et al. 2018; 2019): ranks vote on the sign of each entry of a dense gradient.
// The result is a direction, which the recipe's optimizer (sgd) multiplies by its rate. For Signum, which votes on
// momenta, the momentum would have to be applied before the vote.
#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct SignMajorityConfig {
  double scale = 1;  // as published: the rate of the optimizer alone is the size of a step
  double bucket_mb = 150;
  void fields(Fields& f) {
    f.field("scale", scale, "absolute value of every entry of the result", {0, 1e6, true});
    f.field("bucket_mb", bucket_mb, "megabytes of dense gradients on which ranks vote together; 0: on each separately",
            kNonNegative);
  }
};

class SignMajority final : public FeedbackStrategy {
 public:
  SignMajority(const SignMajorityConfig& config, const SyncEnv& env)
      : FeedbackStrategy({.feedback = false, .bucket_mb = config.bucket_mb}, env),
        scale_(static_cast<float>(config.scale)) {}
  SyncResult result() const override { return SyncResult::direction; }

 private:
  Tensor exchange(Context& ctx, const Block&, Tensor v) override { return vote_signs(ctx, v, scale_, group()); }
  // The rows of a table are summed exactly, and the sign of the sum is taken.
  void reduce_table(Context& ctx, Var& param) override {
    FeedbackStrategy::reduce_table(ctx, param);
    for (RowSparse& piece : param.grad().pieces) piece.rows = signs(ctx, piece.rows, scale_);
  }
  float scale_;
};

}  // namespace

LMX_PLUGIN(sync, sign_majority, SignMajorityConfig, SignMajority)
