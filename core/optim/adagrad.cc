// Adagrad (Duchi et al. 2011):   g <- g + weight_decay p      s <- s + g^2      p <- p - lr g / (sqrt(s) + eps)
#include <cmath>

#include "lmx/kernels.h"
#include "nn/component.h"
#include "optim/slots.h"

namespace lmx::optim {
namespace {

struct AdagradConfig {
  double lr = 0.1;
  double initial_accumulator = 0;
  double eps = 1e-10;
  double weight_decay = 0;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("initial_accumulator", initial_accumulator, "what the sum of squared gradients starts at", kNonNegative);
    f.field("eps", eps, "added to the root of that sum", kNonNegative);
    f.field("weight_decay", weight_decay, "L2 penalty added to the gradient", kNonNegative);
  }
  static AdagradConfig read(const Node& config, const std::string& path) {
    return read_config<AdagradConfig>(config, path);
  }
};

template <class T>
struct Coefficients {
  T lr, grad, decay, eps;
};

template <class T>
LMX_SIMD void kernel(T* __restrict p, const T* __restrict g, T* __restrict s, const Coefficients<T>& given, int64_t n) {
  const Coefficients<T> c = given;
  for (int64_t i = 0; i < n; ++i) {
    const T d = c.grad * g[i] + c.decay * p[i];
    s[i] += d * d;
    p[i] -= c.lr * d / (std::sqrt(s[i]) + c.eps);
  }
}

class Adagrad final : public SlotOptimizer {
 public:
  explicit Adagrad(AdagradConfig config)
      : SlotOptimizer("adagrad", {{"sum", config.initial_accumulator}}), config_(config) {}

 protected:
  void apply(const Run<float>& run, const Rates& rates) const override { typed(run, rates); }
  void apply(const Run<double>& run, const Rates& rates) const override { typed(run, rates); }

 private:
  template <class T>
  void typed(const Run<T>& run, const Rates& r) const {
    const Coefficients<T> c{static_cast<T>(r.lr), static_cast<T>(r.grad_scale), static_cast<T>(config_.weight_decay),
                            static_cast<T>(config_.eps)};
    kernel<T>(run.param, run.grad, run.slot[0], c, run.n);
  }

  AdagradConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(const Node& config, const std::string& path) {
  return std::make_unique<Adagrad>(AdagradConfig::read(config, path));
}
Node full_adagrad(const Node& config, const std::string& path) {
  return component::full<AdagradConfig>("adagrad", config, path);
}
std::vector<FieldInfo> fields_adagrad() {
  return describe_config<AdagradConfig>();
}

}  // namespace lmx::optim
