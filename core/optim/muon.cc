// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) for the matrices of hidden layers:
//
//   M <- momentum M + G      U = G + momentum M (nesterov), or M
//   X = U / (norm(U) + 1e-7), then five times, with the coefficients (a, b, c) of each iteration
//   A = X X'      X <- a X + (b A + c A A) X
//   P <- (1 - lr weight_decay) P - lr s X
//
// The iteration (Newton and Schulz) brings the singular values of U close to 1. It is computed with X' X if that is
// smaller. s depends on the rows n and columns m: `keller` sqrt(max(1, n / m)); `spectral` sqrt(n / m) (Bernstein and
// Newhouse 2024); `rms` 0.2 sqrt(max(n, m)) (Liu et al. 2025), with which learning rate and weight decay of AdamW can
// be used. A parameter that consists of several matrices (ParameterSpec::parts) is updated matrix by matrix.
//
// The products have the precision of the run.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "backend/serial.h"
#include "lmx/error.h"
#include "lmx/matmul.h"
#include "optim/optimizers.h"
#include "optim/parameter_optimizer.h"

namespace lmx::optim {
namespace {

struct Coefficients {
  double a, b, c;
};
using Iterations = std::array<Coefficients, 5>;

// The coefficients that `coefficients` names. `keller`: of the post. `dion`: of the Muon in microsoft/dion.
Iterations iterations_of(const std::string& name) {
  if (name == "dion")
    return {{{4.0848, -6.8946, 2.9270},
             {3.9505, -6.3029, 2.6377},
             {3.7418, -5.5913, 2.3037},
             {2.8769, -3.1427, 1.2046},
             {2.8366, -3.0525, 1.2012}}};
  Iterations same;
  same.fill({3.4445, -4.7750, 2.0315});
  return same;
}

struct MuonConfig : OptimizerConfig<MuonConfig> {
  double lr = 0.02;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0;
  std::string scale = "keller";
  std::string coefficients = "keller";

  void fields(Fields& f) {
    f.field("lr", lr, "learning rate, before the schedule and the batch rule", kNonNegative);
    f.field("momentum", momentum, "part of the sum of gradients that an update keeps, below 1", kFraction);
    f.field("nesterov", nesterov, "look ahead along the momentum");
    f.field("weight_decay", weight_decay, "decay of the value itself", kNonNegative);
    f.choice(
        "scale", scale, {"keller", "spectral", "rms"},
        "factor of the update of a matrix with n rows and m columns: keller sqrt(max(1, n / m)), spectral sqrt(n / "
        "m), rms 0.2 sqrt(max(n, m))");
    f.choice("coefficients", coefficients, {"keller", "dion"}, "of the five Newton-Schulz iterations");
  }
  static MuonConfig read(const Node& config, const std::string& path) {
    auto c = read_config<MuonConfig>(config, path);
    if (c.momentum >= 1)
      throw UserError(str(place_of_key(config, path, "momentum"), "must be below 1, got ", c.momentum));
    return c;
  }
};

// Why Muon cannot update a parameter; "" if it can.
std::string unfit(const ParameterSpec& spec) {
  if (spec.output) return "the output layer";
  if (spec.sparse) return "a table";
  if (spec.shape.rank() < 2 || spec.shape[0] == 1 || spec.shape[1] == 1) return "a vector";
  return spec.shape.rank() > 2 ? "no matrix" : "";
}

class Muon final : public ParameterOptimizer {
 public:
  explicit Muon(const MuonConfig& config)
      : ParameterOptimizer("muon"), config_(config), iterations_(iterations_of(config.coefficients)) {}

  void begin(const std::vector<ParameterSpec>& params, const std::string& where) override {
    std::string names;
    for (const ParameterSpec& spec : params) {
      if (const std::string why = unfit(spec); !why.empty())
        names += str(names.empty() ? "" : ", ", spec.name, " (", why, ")");
      parts_[spec.name] = spec.parts;
    }
    if (!names.empty())
      throw UserError(str(where, "muon updates matrices of hidden layers, not ", names,
                          "; give these parameters to another optimizer, with rules such as optimizer: {hidden: "
                          "{params: PATTERN, name: muon}, rest: {params: \".*\", name: adamw}}"));
  }

 protected:
  States states(const Tensor& value) const override { return {{"momentum", value.shape(), value.dtype()}}; }

  void step(Context& ctx, Step& s, const Rates& rates) override {
    const Tensor u = s.value.like(MemClass::other);
    run_elements(ctx, u, s.grad, s.slots, s.scale, [&]<class T>(const Change<T>& c) {
      return MuonMomentum<T>{c, static_cast<T>(config_.momentum), config_.nesterov ? T(1) : T(0)};
    });
    std::vector<int64_t> parts = parts_[s.name];
    if (parts.empty()) parts = {s.value.dim(0)};
    int64_t first = 0;
    for (const int64_t rows : parts) {
      const Tensor x = orthogonal(ctx, u.slice(first, first + rows));
      run_elements(ctx, s.value.slice(first, first + rows), x, {}, s.scale, [&]<class T>(const Change<T>& c) {
        return Combination<T>{c, static_cast<T>(1 - rates.lr * config_.weight_decay),
                              static_cast<T>(-rates.lr * scale_of(rows, s.value.dim(1)))};
      });
      first += rows;
    }
  }

 private:
  double scale_of(int64_t rows, int64_t columns) const {
    const auto n = static_cast<double>(rows), m = static_cast<double>(columns);
    if (config_.scale == "rms") return 0.2 * std::sqrt(std::max(n, m));
    return std::sqrt(config_.scale == "spectral" ? n / m : std::max(1.0, n / m));
  }

  // x <- a x + b y
  static void combine(Context& ctx, const Tensor& x, double a, const Tensor& y, double b) {
    run_elements(ctx, x, y, {}, {}, [&]<class T>(const Change<T>& c) {
      return Combination<T>{c, static_cast<T>(a), static_cast<T>(b)};
    });
  }

  // X of the formula. The bits of a product may depend on its number of threads, so it has those of a rank also where
  // one rank computes with the threads of all ranks (Communicator::once()): then an update that ranks divide among them
  // has the bits of one that they make together.
  Tensor orthogonal(Context& ctx, const Tensor& u) const {
    const ThreadLimit limit(ctx.threads > 0 ? ctx.threads : num_threads());
    const bool tall = u.dim(0) > u.dim(1);
    const int64_t least = std::min(u.dim(0), u.dim(1));
    const Tensor squares = squares_of(ctx, std::array{u});
    Tensor x = ctx.empty(u.shape(), u.dtype(), MemClass::other), next = x.like(MemClass::other),
           a = ctx.empty({least, least}, u.dtype(), MemClass::other), b = a.like(MemClass::other);
    run_elements(ctx, x, u, {}, {}, [&]<class T>(const Change<T>& c) {
      return NormalisedCopy<T>{c, squares.data<double>(), 1e-7};
    });
    for (const Coefficients& k : iterations_) {
      matmul(ctx, x, tall, x, !tall, a);
      matmul(ctx, a, false, a, false, b);
      combine(ctx, b, k.c, a, k.b);
      tall ? matmul(ctx, x, false, b, false, next) : matmul(ctx, b, false, x, false, next);
      combine(ctx, next, 1, x, k.a);
      std::swap(x, next);
    }
    return x;
  }

  MuonConfig config_;
  Iterations iterations_;
  std::map<std::string, std::vector<int64_t>> parts_;  // by parameter
};

}  // namespace

Entry muon() {
  return entry_of<Muon, MuonConfig>("muon");
}

}  // namespace lmx::optim
