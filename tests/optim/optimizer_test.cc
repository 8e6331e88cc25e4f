// Optimizers against scalar loops of their formulas; dense against row-sparse; state that survives a restart.
#include <cmath>
#include <functional>

#include "lmx/optim.h"
#include "optim/configs.h"
#include "test.h"

namespace lmx {
namespace {

using namespace lmx_test;
using lmx_test::optimizer;

constexpr int64_t kRows = 5, kCols = 37;

// A store with one parameter "w" (rows, cols) of random values, in f32 or f64.
struct Trained {
  explicit Trained(DType compute = DType::f32, Shape shape = {kRows, kCols}) {
    ctx.compute = compute;
    params.add(ctx, {"w", shape, {"normal", 1.0}, false}, RandomKey(1));
  }
  Var& w() { return params.at("w"); }
  double value(int64_t i) {
    return w().value().dtype() == DType::f64 ? w().value().data<double>()[i]
                                             : static_cast<double>(w().value().data<float>()[i]);
  }
  // Gradient of step t, dense or as rows `rows` of it.
  static double gradient(int64_t t, int64_t i) {
    return RandomKey(7).fold(static_cast<uint64_t>(t)).normal(static_cast<uint64_t>(i));
  }
  void set_dense(int64_t t) {
    w().grad().clear();
    Tensor g = w().value().like(MemClass::gradients);
    for (int64_t i = 0; i < g.numel(); ++i) put(g, i, gradient(t, i));
    w().grad().dense = g;
  }
  void set_rows(int64_t t, const std::vector<int32_t>& rows) {
    w().grad().clear();
    const int64_t cols = w().value().dim(1);
    Tensor g = ctx.empty({static_cast<int64_t>(rows.size()), cols}, w().value().dtype(), MemClass::gradients);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int64_t j = 0; j < cols; ++j) put(g, static_cast<int64_t>(r) * cols + j, gradient(t, rows[r] * cols + j));
    }
    w().grad().pieces.push_back({rows, g, true});
  }
  static void put(Tensor& t, int64_t i, double x) {
    if (t.dtype() == DType::f64) {
      t.data<double>()[i] = x;
    } else {
      t.data<float>()[i] = static_cast<float>(x);
    }
  }

  Context ctx;
  ParameterStore params;
};

// One scalar's update: value and slots in place.
struct Scalar {
  double p;
  double a, b;  // slots
};
using Reference = std::function<void(Scalar&, double g, double lr, int64_t t)>;

struct Case {
  std::string config;
  double initial;  // of slot a
  Reference step;
};

std::vector<Case> cases() {
  const auto sgd = [](double momentum, bool nesterov, double wd) {
    return [=](Scalar& s, double g, double lr, int64_t) {
      const double d = g + wd * s.p;
      s.a = momentum * s.a + d;
      s.p -= lr * (nesterov ? d + momentum * s.a : momentum > 0 ? s.a : d);
    };
  };
  const auto adagrad = [](double wd, double eps) {
    return [=](Scalar& s, double g, double lr, int64_t) {
      const double d = g + wd * s.p;
      s.a += d * d;
      s.p -= lr * d / (std::sqrt(s.a) + eps);
    };
  };
  const auto adam = [](double b1, double b2, double wd, bool decoupled) {
    return [=](Scalar& s, double g, double lr, int64_t t) {
      if (decoupled) s.p -= lr * wd * s.p;
      const double d = decoupled ? g : g + wd * s.p;
      s.a = b1 * s.a + (1 - b1) * d;
      s.b = b2 * s.b + (1 - b2) * d * d;
      const double time = static_cast<double>(t);
      s.p -= lr * (s.a / (1 - std::pow(b1, time))) / (std::sqrt(s.b / (1 - std::pow(b2, time))) + 1e-8);
    };
  };
  return {{"name: sgd", 0, sgd(0, false, 0)},
          {"{name: sgd, weight_decay: 0.1}", 0, sgd(0, false, 0.1)},
          {"{name: sgd, momentum: 0.9}", 0, sgd(0.9, false, 0)},
          {"{name: sgd, momentum: 0.8, nesterov: true, weight_decay: 0.01}", 0, sgd(0.8, true, 0.01)},
          {"name: adagrad", 0, adagrad(0, 1e-10)},
          {"{name: adagrad, initial_accumulator: 1, weight_decay: 0.05, eps: 1e-3}", 1, adagrad(0.05, 1e-3)},
          {"name: adam", 0, adam(0.9, 0.999, 0, false)},
          {"{name: adam, betas: [0.5, 0.98], weight_decay: 0.1}", 0, adam(0.5, 0.98, 0.1, false)},
          {"name: adamw", 0, adam(0.9, 0.999, 0.01, true)}};
}

double rate_of(int64_t t) {
  return 0.1 / static_cast<double>(t);
}

TEST(Optimizer, DenseFollowsTheFormula) {
  for (const DType type : {DType::f64, DType::f32}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.config);
      Trained f(type);
      const auto o = optimizer(c.config);
      std::vector<Scalar> reference;
      for (int64_t i = 0; i < kRows * kCols; ++i) reference.push_back({f.value(i), c.initial, 0});
      for (int64_t t = 1; t <= 5; ++t) {
        f.set_dense(t);
        const uint64_t version = f.w().version();
        o->update(f.ctx, f.w(), rate_of(t), t, t == 3 ? 0.25 : 1.0);
        EXPECT_EQ(f.w().version(), version + 1);
        for (int64_t i = 0; i < kRows * kCols; ++i) {
          Scalar& s = reference[static_cast<size_t>(i)];
          c.step(s, Trained::gradient(t, i) * (t == 3 ? 0.25 : 1.0), rate_of(t), t);
          ASSERT_NEAR(f.value(i), s.p, type == DType::f64 ? 1e-12 : 3e-6) << "step " << t << " element " << i;
        }
      }
    }
  }
}

// Rows without a gradient stand still: value, momentum, moments and decay; Adam's t counts global steps.
TEST(Optimizer, RowSparseIsTheSameOnTouchedRowsOnly) {
  const std::vector<std::vector<int32_t>> touched{{0, 3}, {3}, {1, 2, 3}, {0}};
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.config);
    Trained f(DType::f64);
    const auto o = optimizer(c.config);
    std::vector<Scalar> reference;
    for (int64_t i = 0; i < kRows * kCols; ++i) reference.push_back({f.value(i), c.initial, 0});
    for (int64_t t = 1; t <= 4; ++t) {
      const auto& rows = touched[static_cast<size_t>(t - 1)];
      f.set_rows(t, rows);
      o->update(f.ctx, f.w(), rate_of(t), t, 0.5);
      for (const int32_t r : rows) {
        for (int64_t j = 0; j < kCols; ++j) {
          const int64_t i = r * kCols + j;
          c.step(reference[static_cast<size_t>(i)], 0.5 * Trained::gradient(t, i), rate_of(t), t);
        }
      }
      for (int64_t i = 0; i < kRows * kCols; ++i)
        ASSERT_NEAR(f.value(i), reference[static_cast<size_t>(i)].p, 1e-12) << i;
    }
  }
}

// SGD without momentum and Adagrad do nothing where the gradient is zero, so there row-sparse equals dense, bit for
// bit.
TEST(Optimizer, SparseEqualsDenseWhereZeroGradientsDoNothing) {
  for (const char* config : {"name: sgd", "{name: adagrad, initial_accumulator: 0.1}"}) {
    Trained sparse, dense;
    const auto a = optimizer(config), b = optimizer(config);
    for (int64_t t = 1; t <= 3; ++t) {
      const std::vector<int32_t> rows{static_cast<int32_t>(t - 1), 4};
      sparse.set_rows(t, rows);
      dense.set_dense(t);
      float* g = dense.w().grad().dense.data<float>();
      for (int64_t i = 0; i < kRows * kCols; ++i) {
        if (i / kCols != rows[0] && i / kCols != rows[1]) g[i] = 0;
      }
      a->update(sparse.ctx, sparse.w(), 0.1, t);
      b->update(dense.ctx, dense.w(), 0.1, t);
      for (int64_t i = 0; i < kRows * kCols; ++i) ASSERT_EQ(sparse.value(i), dense.value(i)) << config << ' ' << i;
    }
  }
}

TEST(Optimizer, NoGradientChangesNothing) {
  Trained f;
  const auto o = optimizer("name: adam");
  const double before = f.value(3);
  o->update(f.ctx, f.w(), 0.1, 1);
  EXPECT_EQ(f.value(3), before);
  EXPECT_TRUE(o->state().empty());
}

TEST(Optimizer, RowSparseTakesNoTableSizedMemoryBesideItsState) {
  for (const char* config : {"name: sgd", "name: adagrad", "name: adam"}) {
    Trained f(DType::f32, {20000, 16});
    const auto o = optimizer(config);
    f.set_rows(1, {0, 19999});
    o->update(f.ctx, f.w(), 0.1, 1);  // makes the state
    f.ctx.allocator->reset_peak();
    const int64_t before = f.ctx.allocator->stats().total_peak;
    o->update(f.ctx, f.w(), 0.1, 2);
    EXPECT_LT(f.ctx.allocator->stats().total_peak - before, 4096) << config;
  }
}

TEST(Optimizer, StateRoundTripIsBitExact) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.config);
    Trained straight, resumed;
    const auto o = optimizer(c.config);
    for (int64_t t = 1; t <= 3; ++t) {
      straight.set_dense(t);
      o->update(straight.ctx, straight.w(), 0.1, t);
    }
    StateDict saved;
    for (const auto& [name, tensor] : o->state()) {
      EXPECT_EQ(tensor.mem_class(), MemClass::optimizer);
      saved.emplace(name, tensor.clone());
    }
    resumed.w().value().copy_from(straight.w().value());
    const auto restored = optimizer(c.config);
    restored->load(resumed.ctx, resumed.params, saved);
    for (int64_t t = 4; t <= 6; ++t) {
      straight.set_dense(t);
      resumed.set_dense(t);
      o->update(straight.ctx, straight.w(), 0.1, t);
      restored->update(resumed.ctx, resumed.w(), 0.1, t);
    }
    for (int64_t i = 0; i < kRows * kCols; ++i) ASSERT_EQ(straight.value(i), resumed.value(i)) << i;
  }
}

std::string load_message(const std::string& config, const StateDict& state) {
  Trained f;
  return lmx_test::user_error([&] { optimizer(config)->load(f.ctx, f.params, state); });
}

TEST(Optimizer, LoadErrors) {
  const auto zeros = [](Shape s, DType t = DType::f32) { return Tensor::zeros(Allocator::cpu(), s, t); };
  const Tensor good = zeros({kRows, kCols});
  EXPECT_EQ(load_message("name: adam", {{"w.exp_avg", good}, {"w.exp_avg_sq", zeros({kRows, 36})}}),
            "[adam] state 'w.exp_avg_sq' is (5, 36) f32, the parameter (5, 37) f32");
  EXPECT_EQ(load_message("name: adam", {{"w.exp_avg", zeros({kRows, kCols}, DType::f64)}, {"w.exp_avg_sq", good}}),
            "[adam] state 'w.exp_avg' is (5, 37) f64, the parameter (5, 37) f32");
  EXPECT_EQ(load_message("name: adam", {{"w.exp_avg", good}}), "[adam] state 'w.exp_avg_sq' is missing");
  EXPECT_EQ(load_message("name: adam", {{"w.exp_avg", good}, {"w.exp_avg_sq", good}, {"w.exp_avg_s", good}}),
            "[adam] state 'w.exp_avg_s' belongs to no parameter's slot (did you mean 'w.exp_avg_sq'?)");
  EXPECT_THAT(load_message("name: sgd", {{"w.momentum", good}}), Names("w.momentum"));
  EXPECT_EQ(load_message("name: sgd", {}), "no error");
}

std::string config_message(const std::string& text) {
  return lmx_test::user_error([&] { make_optimizer(yaml(text), "optimizer"); });
}

TEST(Optimizer, ConfigErrors) {
  EXPECT_EQ(config_message("name: sdg"),
            "r.yaml:1:7: optimizer.name: expected one of sgd, adagrad, adam, adamw, muon, lion, lamb, lars, adafactor, "
            "schedule_free, got 'sdg' (did you mean 'sgd'?)");
  EXPECT_EQ(config_message("{lr: 1}"),
            "r.yaml:1:1: optimizer.name: expected one of sgd, adagrad, adam, adamw, muon, lion, lamb, lars, adafactor, "
            "schedule_free, got none");
  for (const char* name : {"lion", "lamb", "schedule_free"})
    EXPECT_THAT(config_message(str("{name: ", name, ", betas: [0.9, 1.0]}")),
                Names("optimizer.betas: expected two numbers in [0, 1) such as [0.9, 0.999]"));
  EXPECT_THAT(config_message("{name: schedule_free, betas: [0, 0.9]}"), Names("optimizer.betas", "above 0"));
  EXPECT_THAT(config_message("{name: adafactor, eps: [1e-3]}"), Names("optimizer.eps", "two numbers"));
  EXPECT_THAT(config_message("{name: muon, momentum: 1}"), Names("optimizer.momentum", "below 1"));
  EXPECT_THAT(config_message("{name: muon, scale: large}"), Names("optimizer.scale", "keller, spectral, rms"));
  EXPECT_EQ(config_message("{name: sgd, learning_rate: 1}").substr(0, 40), "r.yaml:1:13: unknown key optimizer.learn");
  EXPECT_EQ(config_message("{name: sgd, lr: -1}"), "r.yaml:1:17: optimizer.lr: must be >= 0, got -1");
  EXPECT_EQ(config_message("{name: sgd, nesterov: true}"), "r.yaml:1:1: optimizer: nesterov needs a momentum above 0");
  EXPECT_EQ(config_message("{name: adam, betas: [0.9]}"),
            "r.yaml:1:21: optimizer.betas: expected two numbers in [0, 1) such as [0.9, 0.999]");
  EXPECT_EQ(config_message("{name: adam, betas: [0.9, 1.0]}"),
            "r.yaml:1:21: optimizer.betas: expected two numbers in [0, 1) such as [0.9, 0.999]");
  EXPECT_EQ(config_message("{name: adamw, eps: small}"), "r.yaml:1:20: optimizer.eps: expected a number, got 'small'");
}

TEST(Optimizer, FullConfigHasEveryDefaultNameFirst) {
  EXPECT_EQ(to_yaml(full_optimizer_config(yaml("{lr: 0.2, name: sgd}"), "optimizer")),
            "name: sgd\nlr: 0.2\nmomentum: 0.0\nnesterov: false\nweight_decay: 0.0\n");
  EXPECT_EQ(full_optimizer_config(yaml("name: adamw"), "optimizer").at_path("weight_decay")->text, "0.01");
  for (const char* name :
       {"sgd", "adagrad", "adam", "adamw", "muon", "lion", "lamb", "lars", "adafactor", "schedule_free"}) {
    const Node full = full_optimizer_config(yaml(std::string("name: ") + name), "optimizer");
    ASSERT_NE(full.find("lr"), nullptr) << name;
    EXPECT_NO_THROW(make_optimizer(full, "optimizer")) << name;
  }
}

}  // namespace
}  // namespace lmx
