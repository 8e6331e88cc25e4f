// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019); t is the number of the update, from 1:
//
//   adam: g <- g + weight_decay p                 adamw: p <- (1 - lr weight_decay) p
//   m <- b1 m + (1 - b1) g      v <- b2 v + (1 - b2) g^2
//   p <- p - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)
//
// Row-sparse: the same for the rows that have a gradient. The moments of the other rows do not decay, but t counts
// every update.
#include <cmath>

#include "lmx/error.h"
#include "optim/optimizers.h"

namespace lmx::optim {
namespace {

struct AdamConfig {
  double lr = 1e-3;
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("betas", betas, "decay of the first and second moments, each below 1", kFraction);
    f.field("eps", eps, "added to the root of the second moment", kNonNegative);
    f.field("weight_decay", weight_decay, "adam: L2 penalty added to the gradient; adamw: decay of the value itself",
            kNonNegative);
  }
  Traits traits() const { return traits_of(*this); }
  static AdamConfig read(const Node& config, const std::string& path) {
    auto c = read_config<AdamConfig>(config, path);
    check_betas(c.betas, config, path);
    return c;
  }
};
struct AdamwConfig : AdamConfig {
  AdamwConfig() { weight_decay = 0.01; }
  static AdamwConfig read(const Node& config, const std::string& path) {
    AdamConfig::read(config, path);
    return read_config<AdamwConfig>(config, path);
  }
};

class Adam final : public SlotOptimizer {
 public:
  Adam(const char* name, AdamConfig config, bool decoupled)
      : SlotOptimizer(name, {{"exp_avg", 0}, {"exp_avg_sq", 0}}), config_(std::move(config)), decoupled_(decoupled) {}

 protected:
  void apply(Context& ctx, std::span<const Change<float>> all, const Rates& r) const override { typed(ctx, all, r); }
  void apply(Context& ctx, std::span<const Change<double>> all, const Rates& r) const override { typed(ctx, all, r); }

 private:
  template <class T>
  void typed(Context& ctx, std::span<const Change<T>> all, const Rates& r) const {
    const double b1 = config_.betas[0], b2 = config_.betas[1], t = static_cast<double>(r.number),
                 wd = config_.weight_decay;
    run_updates(ctx, all, [&](const Change<T>& c) {
      return AdamUpdate<T>{c,
                           static_cast<T>(decoupled_ ? 0.0 : wd),
                           static_cast<T>(decoupled_ ? 1.0 - r.lr * wd : 1.0),
                           static_cast<T>(b1),
                           static_cast<T>(b2),
                           static_cast<T>(r.lr / (1 - std::pow(b1, t))),
                           static_cast<T>(1 / std::sqrt(1 - std::pow(b2, t))),
                           static_cast<T>(config_.eps)};
    });
  }

  AdamConfig config_;
  bool decoupled_;
};

}  // namespace

Entry adam() {
  return component::entry<AdamConfig, OptimizerFactory>("adam", [](const Node& config, const std::string& path) {
    return std::unique_ptr<Optimizer>(std::make_unique<Adam>("adam", AdamConfig::read(config, path), false));
  });
}
Entry adamw() {
  return component::entry<AdamwConfig, OptimizerFactory>("adamw", [](const Node& config, const std::string& path) {
    return std::unique_ptr<Optimizer>(std::make_unique<Adam>("adamw", AdamwConfig::read(config, path), true));
  });
}

}  // namespace lmx::optim
