// Adafactor (Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", algorithms 4 and
// 5), without momentum; t is the number of the update, from 1, and b = 1 - t^-decay_rate:
//
//   a matrix:  R_i <- b R_i + (1 - b) mean_j(g_ij^2 + eps[0])      C_j <- b C_j + (1 - b) mean_i(g_ij^2 + eps[0])
//              u_ij = g_ij / sqrt(R_i C_j / mean(R))
//   a vector:  v <- b v + (1 - b) (g^2 + eps[0])                   u = g / sqrt(v)
//   rate = lr max(eps[1], rms(p))                                  lr, if scale_parameter is false
//   p <- (1 - rate weight_decay) p - rate / max(1, rms(u) / clip_threshold) u
//
// A matrix of n rows and m columns has a state of n + m numbers. The relative step size of the paper,
// min(1e-2, 1 / sqrt(t)), is the schedule inverse_sqrt with warmup 10000 and optimizer.lr = start_lr = 0.01.
#include <array>
#include <cmath>

#include "lmx/array_ops.h"
#include "lmx/error.h"
#include "lmx/ops.h"
#include "optim/optimizers.h"
#include "optim/parameter_optimizer.h"

namespace lmx::optim {
namespace {

struct AdafactorConfig : OptimizerConfig<AdafactorConfig> {
  double lr = 0.01;
  std::vector<double> eps{1e-30, 1e-3};
  double clip_threshold = 1;
  double decay_rate = 0.8;
  bool scale_parameter = true;
  double weight_decay = 0;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("eps", eps, "added to squared gradients, and least root mean square of a parameter", kNonNegative);
    f.field("clip_threshold", clip_threshold, "largest root mean square of an update, before the learning rate",
            {0, 1e9, true});
    f.field("decay_rate", decay_rate, "the decay of the second moment is 1 - t^-decay_rate", {0, 1, true});
    f.field("scale_parameter", scale_parameter, "multiply the rate by the root mean square of the parameter");
    f.field("weight_decay", weight_decay, "decay of the value itself", kNonNegative);
  }
  static AdafactorConfig read(const Node& config, const std::string& path) {
    auto c = read_config<AdafactorConfig>(config, path);
    if (c.eps.size() != 2)
      throw UserError(str(place_of_key(config, path, "eps"), "expected two numbers such as [1e-30, 1e-3]"));
    return c;
  }
};

class Adafactor final : public ParameterOptimizer {
 public:
  explicit Adafactor(AdafactorConfig config) : ParameterOptimizer("adafactor"), config_(std::move(config)) {}

 protected:
  States states(const Tensor& value) const override {
    if (!is_matrix(value)) return {{"exp_avg_sq", value.shape(), value.dtype()}};
    const int64_t rows = value.dim(0);
    return {{"exp_avg_sq_row", {rows, 1}, value.dtype()},
            {"exp_avg_sq_col", {1, value.numel() / rows}, value.dtype(), false}};
  }

  void step(Context& ctx, Step& s, const Rates& rates) override {
    Context plain = ctx;
    plain.tape = nullptr;
    const Shape flat{s.value.dim(0), s.value.numel() / s.value.dim(0)};
    Tensor gradient = ctx.empty(flat, s.value.dtype(), MemClass::other);
    run_elements(ctx, gradient, s.grad, {}, s.scale, []<class T>(const Change<T>& c) { return ScaledCopy<T>{c}; });
    const Var g(gradient), square = multiply(plain, g, g);
    const double keep = 1 - std::pow(static_cast<double>(rates.number), -config_.decay_rate);
    const auto add = [&](Tensor state, const Var& mean) {
      run_elements(ctx, state, mean.value(), {}, s.scale, [&]<class T>(const Change<T>& c) {
        return AdafactorMean<T>{c, static_cast<T>(keep), static_cast<T>(config_.eps[0])};
      });
    };
    Var u;
    if (is_matrix(s.value)) {
      add(s.slots[0], mean(plain, square, {1}, true));
      add(s.slots[1], mean(plain, square, {0}, true));
      const Var row(s.slots[0]), column(s.slots[1]);
      const Var of_rows = pow(plain, divide(plain, row, mean(plain, row, {0}, true)), -0.5);
      u = multiply(plain, multiply(plain, g, of_rows), pow(plain, column, -0.5));
    } else {
      add(s.slots[0].reshape(flat), square);
      u = multiply(plain, g, pow(plain, Var(s.slots[0].reshape(flat)), -0.5));
    }
    const Tensor squares = squares_of(ctx, std::array{s.value, u.value()});
    run_elements(ctx, s.value, u.value(), {}, s.scale, [&]<class T>(const Change<T>& c) {
      return AdafactorStep<T>{c,
                              squares.data<double>(),
                              rates.lr,
                              config_.scale_parameter ? config_.eps[1] : -1,
                              config_.clip_threshold,
                              config_.weight_decay};
    });
  }

 private:
  AdafactorConfig config_;
};

}  // namespace

Entry adafactor() {
  return entry_of<Adafactor, AdafactorConfig>("adafactor");
}

}  // namespace lmx::optim
