// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2):
//
//   p <- (1 - lr weight_decay) p - lr sign(b1 m + (1 - b1) g)      m <- b2 m + (1 - b2) g
#include "optim/optimizers.h"

namespace lmx::optim {
namespace {

struct LionConfig {
  double lr = 1e-4;
  std::vector<double> betas{0.9, 0.99};
  double weight_decay = 0;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("betas", betas, "share of the momentum in a step, and decay of the momentum, each below 1", kFraction);
    f.field("weight_decay", weight_decay, "decay of the value itself", kNonNegative);
  }
  Traits traits() const { return traits_of(*this); }
  static LionConfig read(const Node& config, const std::string& path) {
    auto c = read_config<LionConfig>(config, path);
    check_betas(c.betas, config, path);
    return c;
  }
};

class Lion final : public SlotOptimizer {
 public:
  explicit Lion(LionConfig config) : SlotOptimizer("lion", {{"exp_avg", 0}}), config_(std::move(config)) {}

 protected:
  void apply(Context& ctx, std::span<const Change<float>> all, const Rates& r) const override { typed(ctx, all, r); }
  void apply(Context& ctx, std::span<const Change<double>> all, const Rates& r) const override { typed(ctx, all, r); }

 private:
  template <class T>
  void typed(Context& ctx, std::span<const Change<T>> all, const Rates& r) const {
    run_updates(ctx, all, [&](const Change<T>& c) {
      return LionUpdate<T>{c, static_cast<T>(r.lr), static_cast<T>(1 - r.lr * config_.weight_decay),
                           static_cast<T>(config_.betas[0]), static_cast<T>(config_.betas[1])};
    });
  }

  LionConfig config_;
};

}  // namespace

Entry lion() {
  return entry_of<Lion, LionConfig>("lion");
}

}  // namespace lmx::optim
