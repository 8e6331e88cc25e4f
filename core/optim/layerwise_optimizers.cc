// The optimizers that choose the length of a parameter's update by its norms.
#include <array>
#include <cmath>

#include "optim/optimizers.h"
#include "optim/parameter_optimizer.h"

namespace lmx::optim {
namespace {

// LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", algorithm 2); t is
// the number of the update, from 1:
//
//   m <- b1 m + (1 - b1) g      v <- b2 v + (1 - b2) g^2
//   r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay p
//   p <- p - lr norm(p) / norm(r) r
//
// The norms are those of the whole parameter; the ratio is 1 if one of them is 0. A vector (a bias, a gain) has the
// ratio 1 and no weight decay.
struct LambConfig : OptimizerConfig<LambConfig> {
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
};

class Lamb final : public ParameterOptimizer {
 public:
  explicit Lamb(LambConfig config) : ParameterOptimizer("lamb"), config_(std::move(config)) {}

 protected:
  States states(const Tensor& value) const override {
    return {{"exp_avg", value.shape(), value.dtype()}, {"exp_avg_sq", value.shape(), value.dtype()}};
  }

  void step(Context& ctx, Step& s, const Rates& rates) override {
    const double b1 = config_.betas[0], b2 = config_.betas[1];
    const bool matrix = is_matrix(s.value);
    const Tensor direction = s.value.clone(MemClass::other);
    run_elements(ctx, direction, s.grad, s.slots, s.scale, [&]<class T>(const Change<T>& c) {
      return LambDirection<T>{c,
                              static_cast<T>(b1),
                              static_cast<T>(b2),
                              static_cast<T>(1 / sum_of_weights(b1, rates.number)),
                              static_cast<T>(1 / std::sqrt(sum_of_weights(b2, rates.number))),
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

// LARS (You, Gitman and Ginsburg 2017, "Large Batch Training of Convolutional Networks", algorithm 1):
//
//   trust = trust_coefficient norm(p) / (norm(g) + weight_decay norm(p))
//   m <- momentum m + lr trust (g + weight_decay p)      p <- p - m
//
// The norms are those of the whole parameter; trust is 1 if one of them is 0. A vector (a bias, a gain) has trust 1 and
// no weight decay.
struct LarsConfig : OptimizerConfig<LarsConfig> {
  double lr = 1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double trust_coefficient = 0.001;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("momentum", momentum, "part of the last update that is kept", {0, 1, false});
    f.field("weight_decay", weight_decay, "L2 penalty added to the gradient; not for vectors", kNonNegative);
    f.field("trust_coefficient", trust_coefficient, "norm of an update, relative to that of the parameter",
            {0, 1e9, true});
  }
};

class Lars final : public ParameterOptimizer {
 public:
  explicit Lars(LarsConfig config) : ParameterOptimizer("lars"), config_(config) {}

 protected:
  States states(const Tensor& value) const override { return {{"momentum", value.shape(), value.dtype()}}; }

  void step(Context& ctx, Step& s, const Rates& rates) override {
    const bool matrix = is_matrix(s.value);
    const Tensor squares = matrix ? squares_of(ctx, std::array{s.value, s.grad}) : Tensor();
    run_elements(ctx, s.value, s.grad, s.slots, s.scale, [&]<class T>(const Change<T>& c) {
      return LarsUpdate<T>{c,
                           squares ? squares.data<double>() : nullptr,
                           rates.lr,
                           config_.trust_coefficient,
                           static_cast<T>(config_.momentum),
                           static_cast<T>(matrix ? config_.weight_decay : 0)};
    });
  }

 private:
  LarsConfig config_;
};

}  // namespace

Entry lamb() {
  return entry_of<Lamb, LambConfig>("lamb");
}
Entry lars() {
  return entry_of<Lars, LarsConfig>("lars");
}

}  // namespace lmx::optim
