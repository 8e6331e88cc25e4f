// Momentum with three state tensors, whose fields have names that no optimizer of lmx uses: the momentum, the number of
// updates of each element, and the sum of absolute gradients. The field `fault` breaks one promise.
#include <cmath>
#include <stdexcept>

#include "lmx/plugin.h"
#include "lmx/slot_optimizer.h"

namespace {

using namespace lmx;

template <class T>
struct Update {
  static constexpr const char* kName = "test_optimizer";
  optim::Elements<T, 3> of;
  T rate, keep;
  int64_t fault;
  T grad = 1;
  LMX_HD void scale(double factor) { grad = is(3) ? T(1) : static_cast<T>(factor); }
  LMX_HD bool is(int64_t number) const { return fault == number; }
  LMX_HD static void apply(T& p, T gradient, T& momentum, T& count, T& size, const Update& c) {
    const T g = c.grad * gradient;
    momentum = c.keep * momentum + g;
    count += T(1);
    size += std::abs(c.is(16) ? gradient : g);
    const T least = c.is(15) ? T(0) : T(1);  // 15: no number for a gradient of 0
    p -= (c.is(14) ? -c.rate : c.rate) * momentum / (least + (c.is(16) ? T(1) : size / count));
  }
};

const KernelAdder adder = cpu::updates<Update>();

struct Config {
  double pace = 0.5;
  double inertia = 0.9;
  int64_t fault = 0;
  void fields(Fields& f) {
    f.field("pace", pace, "the step for a momentum of 1", kNonNegative);
    f.field("inertia", inertia, "part of the last update that is kept", kFraction);
    f.field("fault", fault, "the promise that is broken; 0: none", kNonNegative);
  }
  Traits traits() const {
    if (fault == 2) return {};
    return {{trait::kLearningRate, trait_value(pace)}};
  }
};

class Own final : public optim::SlotOptimizer {
 public:
  explicit Own(const Config& c) : SlotOptimizer("test_optimizer", slots(c.fault)), c_(c) {}

 protected:
  void apply(Context& ctx, std::span<const optim::Change<float>> all, const optim::Rates& r) const override {
    run(ctx, all, r);
  }
  void apply(Context& ctx, std::span<const optim::Change<double>> all, const optim::Rates& r) const override {
    run(ctx, all, r);
  }

 private:
  static std::vector<optim::Slot> slots(int64_t fault) {
    std::vector<optim::Slot> all{{"momentum", 0}, {"count", 0}, {"size", 0}};
    if (fault == 17) all.pop_back();
    return all;
  }
  template <class T>
  void run(Context& ctx, std::span<const optim::Change<T>> all, const optim::Rates& r) const {
    double rate = c_.fault == 1 ? c_.pace : r.lr;
    if (c_.fault == 4) rate *= 1 + 0.1 * ++calls_;
    if (c_.fault == 11 && sizeof(T) == 8) rate *= 1.1;
    static int noise = 0;  // shared by all objects
    if (c_.fault == 13) rate *= 1 + 0.1 * ++noise;
    optim::run_updates(ctx, all, [&](const optim::Change<T>& change) {
      return Update<T>{change, static_cast<T>(rate), static_cast<T>(c_.inertia), c_.fault};
    });
  }

  Config c_;
  mutable int calls_ = 0;  // fault 4: it is part of no checkpoint
};

// The faults of functions that the base class defines.
class TestOptimizer final : public Optimizer {
 public:
  explicit TestOptimizer(const Config& c) : fault_(c.fault), own_(c) {}
  void update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) override {
    if (fault_ == 12) throw std::out_of_range("an optimizer without its map");
    if (fault_ == 7 && !hidden_.defined()) hidden_ = ctx.empty({3}, DType::f32, MemClass::optimizer);
    Gradient& g = param.grad();
    if (fault_ == 6 && g.sparse()) lr /= 2;
    Var other(param.value(), true, param.name());
    other.grad() = g;
    own_.update(ctx, fault_ == 8 ? other : param, lr, number, grad_scale);
    if (fault_ == 5 && g.sparse() && g.pieces[0].indices[0] != 0) param.value().data<float>()[0] *= 0.5f;
    if (fault_ == 9 && g.dense.defined() && g.dense.dtype() == DType::f32) g.dense.data<float>()[0] = 0;
  }
  StateDict state() const override { return own_.state(); }
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) override {
    try {
      own_.load(ctx, params, state);
    } catch (const UserError&) {
      if (fault_ != 10) throw;
    }
  }

 private:
  int64_t fault_;
  Own own_;
  Tensor hidden_;  // is not part of state()
};

}  // namespace

LMX_PLUGIN(optimizer, test_optimizer, Config, TestOptimizer)
