// Stochastic gradient descent; momentum of Sutskever et al. 2013 in PyTorch's form:
//
//   g <- g + weight_decay p      m <- momentum m + g      p <- p - lr m        (nesterov: p - lr (g + momentum m))
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "nn/component.h"
#include "optim/slots.h"

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
  static SgdConfig read(const Node& config, const std::string& path) {
    auto c = read_config<SgdConfig>(config, path);
    if (c.nesterov && c.momentum == 0)
      throw UserError(str(config::at(config.mark, path), "nesterov needs a momentum above 0"));
    return c;
  }
};

template <class T>
LMX_SIMD void plain(T* __restrict p, const T* __restrict g, T scale, T keep, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = keep * p[i] - scale * g[i];
}

template <class T>
struct Coefficients {
  T lr, grad, decay, momentum, nesterov;
};

template <class T>
LMX_SIMD void with_momentum(T* __restrict p, const T* __restrict g, T* __restrict m, const Coefficients<T>& given,
                            int64_t n) {
  const Coefficients<T> c = given;
  for (int64_t i = 0; i < n; ++i) {
    const T d = c.grad * g[i] + c.decay * p[i];
    m[i] = c.momentum * m[i] + d;
    // Without nesterov the step is m, to which momentum was already applied.
    p[i] -= c.lr * (c.nesterov * (d + c.momentum * m[i]) + (T(1) - c.nesterov) * m[i]);
  }
}

class Sgd final : public SlotOptimizer {
 public:
  explicit Sgd(SgdConfig config)
      : SlotOptimizer("sgd", config.momentum > 0 ? std::vector<Slot>{{"momentum", 0}} : std::vector<Slot>{}),
        config_(config) {}

 protected:
  void apply(const Run<float>& run, const Rates& rates) const override { typed(run, rates); }
  void apply(const Run<double>& run, const Rates& rates) const override { typed(run, rates); }

 private:
  template <class T>
  void typed(const Run<T>& run, const Rates& r) const {
    if (config_.momentum == 0) {
      const double keep = 1 - r.lr * config_.weight_decay;
      return plain<T>(run.param, run.grad, static_cast<T>(r.lr * r.grad_scale), static_cast<T>(keep), run.n);
    }
    const Coefficients<T> c{static_cast<T>(r.lr), static_cast<T>(r.grad_scale), static_cast<T>(config_.weight_decay),
                            static_cast<T>(config_.momentum), config_.nesterov ? T(1) : T(0)};
    with_momentum<T>(run.param, run.grad, run.slot[0], c, run.n);
  }

  SgdConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const Node& config, const std::string& path) {
  return std::make_unique<Sgd>(SgdConfig::read(config, path));
}
Node full_sgd(const Node& config, const std::string& path) {
  return component::full<SgdConfig>("sgd", config, path);
}
std::vector<FieldInfo> fields_sgd() {
  return describe_config<SgdConfig>();
}

}  // namespace lmx::optim
