// LARS (You, Gitman and Ginsburg 2017, "Large Batch Training of Convolutional Networks", algorithm 1):
//
//   trust = trust_coefficient norm(p) / (norm(g) + weight_decay norm(p))
//   m <- momentum m + lr trust (g + weight_decay p)      p <- p - m
//
// The norms are those of the whole parameter; trust is 1 if one of them is 0. A vector (a bias, a gain) has trust 1 and
// no weight decay.
#include <array>

#include "optim/optimizers.h"
#include "optim/parameter_optimizer.h"

namespace lmx::optim {
namespace {

struct LarsConfig {
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
  Traits traits() const { return traits_of(*this); }
  static LarsConfig read(const Node& config, const std::string& path) { return read_config<LarsConfig>(config, path); }
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

Entry lars() {
  return entry_of<Lars, LarsConfig>("lars");
}

}  // namespace lmx::optim
