// signSGD with majority vote (Bernstein et al. 2018; 2019): ranks vote on the sign of each entry of a dense gradient.
// The result is a direction, which the recipe's optimizer (sgd) multiplies by its rate. For Signum, which votes on
// momenta, the momentum would have to be applied before the vote.
#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct SignMajorityConfig {
  double bucket_mb = 150;
  void fields(Fields& f) {
    f.field("bucket_mb", bucket_mb, "megabytes of dense gradients on which ranks vote together; 0: on each separately",
            kNonNegative);
  }
};

class SignMajority final : public FeedbackStrategy {
 public:
  SignMajority(const SignMajorityConfig& config, const SyncEnv& env)
      : FeedbackStrategy({.feedback = false, .bucket_mb = config.bucket_mb}, env) {}
  SyncResult result() const override { return SyncResult::direction; }

 private:
  Tensor exchange(Context& ctx, const Block&, Tensor v) override { return vote_signs(ctx, v, group()); }
};

}  // namespace

LMX_PLUGIN(sync, sign_majority, SignMajorityConfig, SignMajority)
