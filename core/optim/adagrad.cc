// Adagrad (Duchi et al. 2011):   g <- g + weight_decay p      s <- s + g^2      p <- p - lr g / (sqrt(s) + eps)
#include "optim/optimizers.h"

namespace lmx::optim {
namespace {

struct AdagradConfig {
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
  Traits traits() const { return traits_of(*this); }
  static AdagradConfig read(const Node& config, const std::string& path) {
    return read_config<AdagradConfig>(config, path);
  }
};

class Adagrad final : public SlotOptimizer {
 public:
  explicit Adagrad(AdagradConfig config)
      : SlotOptimizer("adagrad", {{"sum", config.initial_accumulator}}), config_(config) {}

 protected:
  void apply(Context& ctx, std::span<const Change<float>> all, const Rates& r) const override { typed(ctx, all, r); }
  void apply(Context& ctx, std::span<const Change<double>> all, const Rates& r) const override { typed(ctx, all, r); }

 private:
  template <class T>
  void typed(Context& ctx, std::span<const Change<T>> all, const Rates& r) const {
    run_updates(ctx, all, [&](const Change<T>& c) {
      return AdagradUpdate<T>{c, static_cast<T>(r.lr), static_cast<T>(config_.weight_decay),
                              static_cast<T>(config_.eps)};
    });
  }

  AdagradConfig config_;
};

}  // namespace

Entry adagrad() {
  return entry_of<Adagrad, AdagradConfig>("adagrad");
}

}  // namespace lmx::optim
