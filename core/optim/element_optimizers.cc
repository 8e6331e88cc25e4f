// The optimizers that compute each element of a parameter separately (lmx/slot_optimizer.h).
#include <cmath>

#include "lmx/error.h"
#include "optim/optimizers.h"

namespace lmx::optim {
namespace {

// The common part. `Self` has a function template typed() for both types of values.
template <class Self, class Config>
class ElementOptimizer : public SlotOptimizer {
 public:
  ElementOptimizer(const char* name, std::vector<Slot> slots, Config config)
      : SlotOptimizer(name, std::move(slots)), config_(std::move(config)) {}

 protected:
  void apply(Context& ctx, std::span<const Change<float>> all, const Rates& r) const final {
    self().typed(ctx, all, r);
  }
  void apply(Context& ctx, std::span<const Change<double>> all, const Rates& r) const final {
    self().typed(ctx, all, r);
  }
  const Config config_;

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

// Stochastic gradient descent; momentum of Sutskever et al. 2013 in PyTorch's form:
//
//   g <- g + weight_decay p      m <- momentum m + g      p <- p - lr m        (nesterov: p - lr (g + momentum m))
struct SgdConfig : OptimizerConfig<SgdConfig> {
  double lr = 0.1;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("momentum", momentum, "part of the last update that is kept; 0: none, and no state", {0, 1, false});
    f.field("nesterov", nesterov, "look ahead along the momentum");
    f.field("weight_decay", weight_decay, "L2 penalty added to the gradient", kNonNegative);
  }
  static SgdConfig read(const Node& config, const std::string& path) {
    auto c = read_config<SgdConfig>(config, path);
    if (c.nesterov && c.momentum == 0)
      throw UserError(str(config::at(config.mark, path), "nesterov needs a momentum above 0"));
    return c;
  }
};

class Sgd final : public ElementOptimizer<Sgd, SgdConfig> {
 public:
  explicit Sgd(SgdConfig config)
      : ElementOptimizer("sgd", config.momentum > 0 ? std::vector<Slot>{{"momentum", 0}} : std::vector<Slot>{},
                         config) {}

  template <class T>
  void typed(Context& ctx, std::span<const Change<T>> all, const Rates& r) const {
    if (config_.momentum == 0) {
      const double keep = 1 - r.lr * config_.weight_decay;
      return run_updates(ctx, all, [&](const Change<T>& c) { return SgdUpdate<T>{c, r.lr, static_cast<T>(keep)}; });
    }
    run_updates(ctx, all, [&](const Change<T>& c) {
      return MomentumUpdate<T>{c, static_cast<T>(r.lr), static_cast<T>(config_.weight_decay),
                               static_cast<T>(config_.momentum), config_.nesterov ? T(1) : T(0)};
    });
  }
};

// Adagrad (Duchi et al. 2011):   g <- g + weight_decay p      s <- s + g^2      p <- p - lr g / (sqrt(s) + eps)
struct AdagradConfig : OptimizerConfig<AdagradConfig> {
  double lr = 0.1;
  double initial_accumulator = 0;
  double eps = 1e-10;
  double weight_decay = 0;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("initial_accumulator", initial_accumulator, "initial value of the sum of squared gradients", kNonNegative);
    f.field("eps", eps, "added to the root of that sum", kNonNegative);
    f.field("weight_decay", weight_decay, "L2 penalty added to the gradient", kNonNegative);
  }
};

class Adagrad final : public ElementOptimizer<Adagrad, AdagradConfig> {
 public:
  explicit Adagrad(AdagradConfig config) : ElementOptimizer("adagrad", {{"sum", config.initial_accumulator}}, config) {}

  template <class T>
  void typed(Context& ctx, std::span<const Change<T>> all, const Rates& r) const {
    run_updates(ctx, all, [&](const Change<T>& c) {
      return AdagradUpdate<T>{c, static_cast<T>(r.lr), static_cast<T>(config_.weight_decay),
                              static_cast<T>(config_.eps)};
    });
  }
};

// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019); t is the number of the update, from 1:
//
//   adam: g <- g + weight_decay p                 adamw: p <- (1 - lr weight_decay) p
//   m <- b1 m + (1 - b1) g      v <- b2 v + (1 - b2) g^2
//   p <- p - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)
//
// Row-sparse: the same for the rows that have a gradient. The moments of the other rows do not decay, but t counts
// every update.
struct AdamConfig : OptimizerConfig<AdamConfig> {
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
};
struct AdamwConfig : AdamConfig {
  AdamwConfig() { weight_decay = 0.01; }
  static AdamwConfig read(const Node& config, const std::string& path) {
    return OptimizerConfig<AdamwConfig>::read(config, path);
  }
};

class Adam final : public ElementOptimizer<Adam, AdamConfig> {
 public:
  Adam(const char* name, AdamConfig config, bool decoupled)
      : ElementOptimizer(name, {{"exp_avg", 0}, {"exp_avg_sq", 0}}, std::move(config)), decoupled_(decoupled) {}

  template <class T>
  void typed(Context& ctx, std::span<const Change<T>> all, const Rates& r) const {
    const double b1 = config_.betas[0], b2 = config_.betas[1], wd = config_.weight_decay;
    run_updates(ctx, all, [&](const Change<T>& c) {
      return AdamUpdate<T>{c,
                           static_cast<T>(decoupled_ ? 0.0 : wd),
                           static_cast<T>(decoupled_ ? 1.0 - r.lr * wd : 1.0),
                           static_cast<T>(b1),
                           static_cast<T>(b2),
                           static_cast<T>(r.lr / sum_of_weights(b1, r.number)),
                           static_cast<T>(1 / std::sqrt(sum_of_weights(b2, r.number))),
                           static_cast<T>(config_.eps)};
    });
  }

 private:
  bool decoupled_;
};

// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2):
//
//   p <- (1 - lr weight_decay) p - lr sign(b1 m + (1 - b1) g)      m <- b2 m + (1 - b2) g
struct LionConfig : OptimizerConfig<LionConfig> {
  double lr = 1e-4;
  std::vector<double> betas{0.9, 0.99};
  double weight_decay = 0;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("betas", betas, "share of the momentum in a step, and decay of the momentum, each below 1", kFraction);
    f.field("weight_decay", weight_decay, "decay of the value itself", kNonNegative);
  }
};

class Lion final : public ElementOptimizer<Lion, LionConfig> {
 public:
  explicit Lion(LionConfig config) : ElementOptimizer("lion", {{"exp_avg", 0}}, std::move(config)) {}

  template <class T>
  void typed(Context& ctx, std::span<const Change<T>> all, const Rates& r) const {
    run_updates(ctx, all, [&](const Change<T>& c) {
      return LionUpdate<T>{c, static_cast<T>(r.lr), static_cast<T>(1 - r.lr * config_.weight_decay),
                           static_cast<T>(config_.betas[0]), static_cast<T>(config_.betas[1])};
    });
  }
};

}  // namespace

Entry sgd() {
  return entry_of<Sgd, SgdConfig>("sgd");
}
Entry adagrad() {
  return entry_of<Adagrad, AdagradConfig>("adagrad");
}
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
Entry lion() {
  return entry_of<Lion, LionConfig>("lion");
}

}  // namespace lmx::optim
