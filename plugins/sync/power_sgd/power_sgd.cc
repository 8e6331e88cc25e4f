// PowerSGD (Vogels et al. 2019, algorithms 1 and 2): ranks exchange two thin factors of the sum of their gradients,
// found by one step of power iteration from the factor of the step before. Vectors are summed exactly.
#include <algorithm>
#include <map>

#include "lmx/error.h"
#include "lmx/feedback_strategy.h"
#include "lmx/matmul.h"
#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

constexpr MemClass kClass = MemClass::communication;
constexpr const char* kFactor = ".q";

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

  void after_step(Context& ctx) override {
    FeedbackStrategy::after_step(ctx);
    for (auto& [name, q] : factors_) q.before = q.now;
  }
  void discard() override {
    FeedbackStrategy::discard();
    for (auto& [name, q] : factors_) q.now = q.before;
  }
  StateDict state() const override {
    StateDict all = FeedbackStrategy::state();
    for (const auto& [name, q] : factors_)
      if (q.now.defined()) all.emplace(name + kFactor, q.now);
    return all;
  }
  // All ranks have equal factors, so any number of ranks can resume from those of one.
  void load(Context& ctx, const std::vector<StateDict>& ranks) override {
    factors_.clear();
    std::vector<StateDict> rest = ranks;
    for (StateDict& state : rest)
      std::erase_if(state, [](const auto& entry) { return entry.first.ends_with(kFactor); });
    const size_t known = static_cast<int>(ranks.size()) == ctx.ranks ? static_cast<size_t>(ctx.rank) : 0;
    for (const auto& [key, q] : ranks.at(known)) {
      if (!key.ends_with(kFactor)) continue;
      const Tensor own = ctx.upload(q).clone(kClass);
      factors_[key.substr(0, key.size() - std::string_view(kFactor).size())] = {own, own};
    }
    FeedbackStrategy::load(ctx, rest);
  }

 private:
  struct Factor {
    Tensor now, before;  // (columns of the gradient, rank); undefined until the first step
  };

  bool compresses(const ParameterSpec& p) const override {
    return p.shape.rank() > 1 && FeedbackStrategy::compresses(p);
  }

  Tensor exchange(Context& ctx, const Block& block, Tensor v) override {
    const int64_t columns = row_width(block.shape), rows = block.shape[0];
    const Tensor m = v.reshape({rows, columns});
    const Shape shape{columns, std::min({rank_, rows, columns})};
    Tensor& q = factors_[block.name].now;
    if (!q.defined()) q = first_factor(ctx, block, shape);
    if (!(q.shape() == shape))
      throw UserError(str("[sync] the checkpoint keeps a factor ", q.shape(), " of ", block.name, ", where ", shape,
                          " is needed: it is from another model or another rank"));
    const Tensor p = ctx.comm->all_reduce(product(ctx, m, false, q, false), group());
    const Tensor basis = ctx.comm->once_tensor(kClass, [&] {
      const Tensor own = p.clone(kClass);
      orthonormalise(ctx, own);
      return own;
    });
    q = ctx.comm->all_reduce(product(ctx, m, true, basis, false), group());
    const Tensor sum = ctx.comm->once_tensor(kClass, [&] { return product(ctx, basis, false, q, true); });
    if (feedback()) add_scaled(ctx, v, -1.0f / static_cast<float>(ctx.comm->size()), sum);
    return sum.reshape({-1});
  }

  static Tensor product(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b) {
    Tensor c = ctx.empty({a.dim(trans_a ? 1 : 0), b.dim(trans_b ? 0 : 1)}, DType::f32, kClass);
    gemm(ctx, a, trans_a, b, trans_b, c);
    return c;
  }

  // Random, standard normal, and equal on all ranks.
  Tensor first_factor(Context& ctx, const Block& block, Shape shape) const {
    const RandomKey random = key(block);
    Tensor q = Tensor::empty(ctx.host, shape, DType::f32, kClass);
    uint64_t i = 0;
    for (float& x : q.values<float>()) x = static_cast<float>(random.normal(i++));
    return ctx.upload(q);
  }

  int64_t rank_;
  std::map<std::string, Factor> factors_;  // by parameter
};

}  // namespace

LMX_PLUGIN(sync, power_sgd, PowerSgdConfig, PowerSgd)
