// PowerSGD (Vogels et al. 2019, algorithms 1 and 2): ranks exchange two thin factors of the sum of their gradients,
// found by one step of power iteration from the factor of the step before. Vectors are summed exactly.
#include <algorithm>

#include "lmx/error.h"
#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

struct PowerSgdConfig {
  int64_t rank = 4;  // the paper's language model
  FeedbackConfig feedback;
  void fields(Fields& f) {
    f.field("rank", rank, "columns of the two factors of a gradient", {1, 1024});
    f.field("feedback", feedback.feedback, "add what was not sent to the gradient of the next step");
    f.field("min_size", feedback.min_size, "dense gradients with fewer elements are summed exactly", kNonNegative);
  }
};

class PowerSgd final : public FeedbackStrategy {
 public:
  PowerSgd(const PowerSgdConfig& config, const SyncEnv& env)
      : FeedbackStrategy(config.feedback, env), rank_(config.rank) {}

 private:
  bool compresses(const ParameterSpec& p) const override {
    return p.shape.rank() > 1 && FeedbackStrategy::compresses(p);
  }

  // For M (rows, columns) and Q (columns, rank): P is the sum of M Q, made orthonormal, the next Q the sum of M' P, and
  // the result P Q'.
  Tensor exchange(Context& ctx, const Block& block, Tensor v) override {
    const int64_t columns = row_width(block.shape), rows = block.shape[0];
    const Tensor m = v.reshape({rows, columns});
    const Shape shape{columns, std::min({rank_, rows, columns})};
    Tensor& q = common()[block.name];
    if (!q.defined()) q = first_factor(ctx, block, shape);
    if (!(q.shape() == shape))
      throw UserError(str("[sync] the checkpoint keeps a factor ", q.shape(), " of ", block.name, ", where ", shape,
                          " is needed: it is from another model or another rank"));
    const Tensor sum_p = ctx.comm->all_reduce(product(ctx, m, false, q, false), group());
    const Tensor p = ctx.comm->once_tensor(MemClass::communication, [&] {
      const Tensor own = sum_p.clone(MemClass::communication);
      orthonormalise(ctx, own);
      return own;
    });
    q = ctx.comm->all_reduce(product(ctx, m, true, p, false), group());
    const Tensor sum =
        ctx.comm->once_tensor(MemClass::communication, [&] { return product(ctx, p, false, q, true).reshape({-1}); });
    if (feedback()) add_scaled(ctx, v, -1.0f / static_cast<float>(ctx.comm->size()), sum);
    return sum;
  }

  // Random, standard normal, and equal on all ranks.
  Tensor first_factor(Context& ctx, const Block& block, Shape shape) const {
    Tensor q = Tensor::empty(ctx.host, shape, DType::f32, MemClass::communication);
    initialise(q, {"normal", 1}, key(block));
    return ctx.upload(q);
  }

  int64_t rank_;
};

}  // namespace

LMX_PLUGIN(sync, power_sgd, PowerSgdConfig, PowerSgd)
