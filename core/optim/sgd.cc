// Stochastic gradient descent; momentum of Sutskever et al. 2013 in PyTorch's form:
//
//   g <- g + weight_decay p      m <- momentum m + g      p <- p - lr m        (nesterov: p - lr (g + momentum m))
#include "lmx/error.h"
#include "optim/optimizers.h"

namespace lmx::optim {
namespace {

struct SgdConfig {
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
  Traits traits() const { return traits_of(*this); }
  static SgdConfig read(const Node& config, const std::string& path) {
    auto c = read_config<SgdConfig>(config, path);
    if (c.nesterov && c.momentum == 0)
      throw UserError(str(config::at(config.mark, path), "nesterov needs a momentum above 0"));
    return c;
  }
};

class Sgd final : public SlotOptimizer {
 public:
  explicit Sgd(SgdConfig config)
      : SlotOptimizer("sgd", config.momentum > 0 ? std::vector<Slot>{{"momentum", 0}} : std::vector<Slot>{}),
        config_(config) {}

 protected:
  void apply(Context& ctx, std::span<const Change<float>> all, const Rates& r) const override { typed(ctx, all, r); }
  void apply(Context& ctx, std::span<const Change<double>> all, const Rates& r) const override { typed(ctx, all, r); }

 private:
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

  SgdConfig config_;
};

}  // namespace

Entry sgd() {
  return entry_of<Sgd, SgdConfig>("sgd");
}

}  // namespace lmx::optim
