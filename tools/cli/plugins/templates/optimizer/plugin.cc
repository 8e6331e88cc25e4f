// Lion, to start from (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2). With g the
// gradient and m the momentum of an element p:
//
//   p <- p - lr (sign(b1 m + (1 - b1) g) + weight_decay p)      m <- b2 m + (1 - b2) g
//
// The base class applies this to dense and to row-sparse gradients, and saves and loads the momentum. See
// lmx/slot_optimizer.h; an optimizer whose elements depend on each other implements lmx/optim.h itself.
#include "@name@_kernels.h"
#include "lmx/plugin.h"

namespace {

const lmx::KernelAdder adder = lmx::cpu::updates<@name@_kernels::Update>();

// The keys of `optimizer: {name: @name@, ...}` in a recipe. This list reads, checks, documents and prints them.
struct @Name@Config {
  double lr = 1e-4;
  double b1 = 0.9, b2 = 0.99;
  double weight_decay = 0;
  void fields(lmx::Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", lmx::kNonNegative);
    f.field("b1", b1, "share of the momentum in the direction of a step", lmx::kFraction);
    f.field("b2", b2, "share of the momentum that a step keeps", lmx::kFraction);
    f.field("weight_decay", weight_decay, "decay of the parameters, times the learning rate", lmx::kNonNegative);
  }
  // lmx asks for the learning rate by this name; the field may have any name.
  lmx::Traits traits() const { return {{lmx::trait::kLearningRate, lmx::trait_value(lr)}}; }
};

class @Name@ : public lmx::optim::SlotOptimizer {
 public:
  explicit @Name@(const @Name@Config& config) : SlotOptimizer("@name@", {{"momentum", 0}}), c_(config) {}

 protected:
  template <class T>
  using Changes = std::span<const lmx::optim::Change<T>>;
  using Rates = lmx::optim::Rates;
  void apply(lmx::Context& ctx, Changes<float> all, const Rates& r) const override { run(ctx, all, r); }
  void apply(lmx::Context& ctx, Changes<double> all, const Rates& r) const override { run(ctx, all, r); }

 private:
  // `r.lr` is the learning rate of this update, to which schedule and batch rule are applied.
  template <class T>
  void run(lmx::Context& ctx, Changes<T> all, const Rates& r) const {
    lmx::optim::run_updates(ctx, all, [&](const lmx::optim::Change<T>& change) {
      return @name@_kernels::Update<T>{change, static_cast<T>(r.lr), static_cast<T>(c_.b1), static_cast<T>(c_.b2),
                                       static_cast<T>(c_.weight_decay)};
    });
  }

  @Name@Config c_;
};

}  // namespace

LMX_PLUGIN(optimizer, @name@, @Name@Config, @Name@)
