// Schedule-free AdamW (Defazio et al. 2024, "The Road Less Scheduled", algorithm 1, and the package schedulefree). The
// model is trained at y, and used at the average x of the sequence z; t is the number of the update, from 1:
//
//   v <- b2 v + (1 - b2) g^2      d = g / (sqrt(v / (1 - b2^t)) + eps) + weight_decay y
//   c = largest^2 / sum, of the learning rates so far: the largest, and the sum of largest^2 over the updates
//   y <- (1 - c) y + c z + lr (b1 (1 - c) - 1) d      z <- z - lr d
//   x = y + (1 - 1 / b1) (z - y), which is not stored: y = (1 - b1) z + b1 x
//
// The average takes the place of a learning rate that decreases, so the schedule is constant, with a warm-up. A
// row-sparse gradient is refused, because each update changes all rows of y.
#include <cmath>
#include <utility>

#include "lmx/error.h"
#include "optim/optimizers.h"
#include "optim/parameter_optimizer.h"

namespace lmx::optim {
namespace {

struct ScheduleFreeConfig : OptimizerConfig<ScheduleFreeConfig> {
  double lr = 0.0025;
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("betas", betas, "weight of the average in the training values, above 0, and decay of the second moment",
            kFraction);
    f.field("eps", eps, "added to the root of the second moment", kNonNegative);
    f.field("weight_decay", weight_decay, "part of the training values that is added to the direction", kNonNegative);
  }
  Traits traits() const {
    Traits traits = OptimizerConfig::traits();
    traits[trait::kAverages] = "true";
    return traits;
  }
  static ScheduleFreeConfig read(const Node& config, const std::string& path) {
    auto c = OptimizerConfig::read(config, path);
    if (c.betas[0] == 0)
      throw UserError(str(place_of_key(config, path, "betas"), "the first number must be above 0, such as 0.9"));
    return c;
  }
};

class ScheduleFree final : public ParameterOptimizer {
 public:
  explicit ScheduleFree(ScheduleFreeConfig config) : ParameterOptimizer("schedule_free"), config_(std::move(config)) {}

  void begin(const std::vector<ParameterSpec>& params, const std::string& where) override {
    std::string names;
    for (const ParameterSpec& spec : params)
      if (spec.sparse) names += (names.empty() ? "" : ", ") + spec.name;
    if (!names.empty())
      throw UserError(
          str(where, "schedule_free averages all rows of a parameter at each update, but only some rows of ", names,
              " have a gradient; give these parameters to another optimizer, with rules such as "
              "optimizer: {tables: {params: PATTERN, name: adamw}, rest: {params: \".*\", name: "
              "schedule_free}}"));
  }

  void evaluate(Context& ctx, ParameterStore& params, bool on) override {
    if (on) {
      const double ratio = 1 / config_.betas[0];
      for (const auto& [name, slots] : slots()) {
        const Tensor x = params.at(name).value().clone(MemClass::parameters);
        run_elements(ctx, x, slots[kZ], {}, {}, [&]<class T>(const Change<T>& c) {
          return Combination<T>{c, static_cast<T>(ratio), static_cast<T>(1 - ratio)};
        });
        other_[name] = x;
      }
    }
    for (auto& [name, values] : other_) {
      Var& param = params.at(name);
      std::swap(param.value(), values);
      param.changed();
    }
    if (!on) other_.clear();
  }

 protected:
  States states(const Tensor& value) const override {
    return {{"z", value.shape(), value.dtype()},
            {"exp_avg_sq", value.shape(), value.dtype()},
            {"weights", {2}, DType::f64, false}};
  }
  void start(Tensors& slots, const Tensor& value) const override { slots[kZ].copy_from(value); }

  void step(Context& ctx, Step& s, const Rates& rates) override {
    const Tensor& weights = s.slots[kWeights];
    run_elements(ctx, weights.slice(0, 1), weights, {weights.slice(1, 2)}, s.scale, [&]<class T>(const Change<T>& c) {
      return ScheduleFreeWeight<T>{c, static_cast<T>(rates.lr)};
    });
    run_elements(ctx, s.value, s.grad, {s.slots[kZ], s.slots[kSquares]}, s.scale, [&]<class T>(const Change<T>& c) {
      return ScheduleFreeUpdate<T>{c,
                                   weights.data<double>(),
                                   rates.lr,
                                   config_.betas[0],
                                   static_cast<T>(config_.betas[1]),
                                   static_cast<T>(1 / std::sqrt(sum_of_weights(config_.betas[1], rates.number))),
                                   static_cast<T>(config_.eps),
                                   static_cast<T>(config_.weight_decay)};
    });
  }

 private:
  enum : size_t { kZ, kSquares, kWeights };

  ScheduleFreeConfig config_;
  std::map<std::string, Tensor> other_;  // while the averages are in the place of the values: the values
};

}  // namespace

Entry schedule_free() {
  return entry_of<ScheduleFree, ScheduleFreeConfig>("schedule_free");
}

}  // namespace lmx::optim
