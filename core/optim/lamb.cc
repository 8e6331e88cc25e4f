// LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", algorithm 2); t is
// the number of the update, from 1:
//
//   m <- b1 m + (1 - b1) g      v <- b2 v + (1 - b2) g^2
//   r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay p
//   p <- p - lr norm(p) / norm(r) r
//
// The norms are those of the whole parameter; the ratio is 1 if one of them is 0. A vector (a bias, a gain) has the
// ratio 1 and no weight decay.
#include <array>
#include <cmath>

#include "optim/optimizers.h"
#include "optim/parameter_optimizer.h"

namespace lmx::optim {
namespace {

struct LambConfig {
  double lr = 1e-3;
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-6;
  double weight_decay = 0.01;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("betas", betas, "decay of the first and second moments, each below 1", kFraction);
    f.field("eps", eps, "added to the root of the second moment", kNonNegative);
    f.field("weight_decay", weight_decay, "part of the value that is added to the direction; not for vectors",
            kNonNegative);
  }
  Traits traits() const { return traits_of(*this); }
  static LambConfig read(const Node& config, const std::string& path) {
    auto c = read_config<LambConfig>(config, path);
    check_betas(c.betas, config, path);
    return c;
  }
};

class Lamb final : public ParameterOptimizer {
 public:
  explicit Lamb(LambConfig config) : ParameterOptimizer("lamb"), config_(std::move(config)) {}

 protected:
  States states(const Tensor& value) const override {
    return {{"exp_avg", value.shape(), value.dtype()}, {"exp_avg_sq", value.shape(), value.dtype()}};
  }

  void step(Context& ctx, Step& s, const Rates& rates) override {
    const double b1 = config_.betas[0], b2 = config_.betas[1], t = static_cast<double>(rates.number);
    const bool matrix = is_matrix(s.value);
    const Tensor direction = s.value.clone(MemClass::other);
    run_elements(ctx, direction, s.grad, s.slots, s.scale, [&]<class T>(const Change<T>& c) {
      return LambDirection<T>{c,
                              static_cast<T>(b1),
                              static_cast<T>(b2),
                              static_cast<T>(1 / (1 - std::pow(b1, t))),
                              static_cast<T>(1 / std::sqrt(1 - std::pow(b2, t))),
                              static_cast<T>(config_.eps),
                              static_cast<T>(matrix ? config_.weight_decay : 0)};
    });
    const Tensor squares = matrix ? squares_of(ctx, std::array{s.value, direction}) : Tensor();
    run_elements(ctx, s.value, direction, {}, s.scale, [&]<class T>(const Change<T>& c) {
      return LambStep<T>{c, squares ? squares.data<double>() : nullptr, rates.lr};
    });
  }

 private:
  LambConfig config_;
};

}  // namespace

Entry lamb() {
  return entry_of<Lamb, LambConfig>("lamb");
}

}  // namespace lmx::optim
