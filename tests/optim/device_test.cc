// Optimizers, clipping, the moving average and parameters on a CUDA device against the CPU.
#include "device.h"

#include <array>
#include <limits>

#include "lmx/optim.h"
#include "nn/state_dict.h"
#include "optim/configs.h"
#include "runfiles/checkpoint.h"
#include "test.h"
#include "train/loss_scale.h"

namespace lmx {
namespace {

using lmx_test::context_on;
using lmx_test::expect_close;
using lmx_test::optimizer;
using lmx_test::rules;
using lmx_test::values_of;

constexpr Device::Kind kCpu = Device::Kind::cpu, kCuda = Device::Kind::cuda;

double tolerance_of(DType type) {
  return type == DType::f64 ? 1e-12 : 3e-6;
}

// Parameters "w" (rows, cols) and "b" (cols) on a device, with gradients that depend on the step alone.
struct OnDevice {
  OnDevice(Device::Kind kind, DType type, int64_t rows, int64_t cols) : ctx(context_on(kind, type)) {
    params.add(ctx, {"w", {rows, cols}, {"normal", 1.0}}, RandomKey(1));
    params.add(ctx, {"b", {cols}, {"constant", 0.5}}, RandomKey(1));
  }
  Tensor random(Shape shape, uint64_t seed) const {
    Tensor t = Tensor::empty(Allocator::cpu(), shape, ctx.compute, MemClass::gradients);
    initialise(t, {"normal", 1.0}, RandomKey(7).fold(seed));
    return copy_to(t, ctx.allocator);
  }
  // Gradients of step t: of all of w, or of the given rows.
  void set_gradients(uint64_t t, const std::vector<int32_t>* rows = nullptr) {
    params.clear_gradients();
    Var &w = params.at("w"), &b = params.at("b");
    b.grad().dense = random(b.shape(), t);
    if (!rows) {
      w.grad().dense = random(w.shape(), t + 100);
    } else {
      const auto n = static_cast<int64_t>(rows->size());
      w.grad().pieces.push_back({*rows, random({n, w.shape()[1]}, t + 200), true});
    }
  }
  std::vector<double> value(const std::string& name) const { return values_of(ctx, params.at(name).value()); }
  std::map<std::string, std::vector<double>> read(const StateDict& state) const {
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, t] : state) all[name] = values_of(ctx, t);
    return all;
  }

  Context ctx;
  ParameterStore params;
};

void expect_equal(const std::map<std::string, std::vector<double>>& got,
                  const std::map<std::string, std::vector<double>>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    SCOPED_TRACE(name);
    expect_close(got.at(name), values, tolerance);
  }
}

const std::vector<Shape> kShapes{{1, 1}, {5, 37}, {3, 256}, {61, 130}};
// Optimizers that compute each element separately, and those that need a parameter as a whole.
const std::vector<const char*> kOfElements{"name: sgd",
                                           "{name: sgd, weight_decay: 0.1}",
                                           "{name: sgd, momentum: 0.9}",
                                           "{name: sgd, momentum: 0.8, nesterov: true, weight_decay: 0.01}",
                                           "{name: adagrad, initial_accumulator: 1, weight_decay: 0.05, eps: 1e-3}",
                                           "{name: adam, betas: [0.5, 0.98], weight_decay: 0.1}",
                                           "name: adamw",
                                           "{name: lion, weight_decay: 0.1}"};
const std::vector<const char*> kOfParameters{"{name: lamb, weight_decay: 0.1}", "{name: lars, trust_coefficient: 0.1}",
                                             "name: adafactor"};
std::vector<const char*> all_optimizers() {
  std::vector<const char*> all = kOfElements;
  all.insert(all.end(), kOfParameters.begin(), kOfParameters.end());
  return all;
}

class DeviceOptim : public lmx_test::DeviceTest {};

// Values and state after a dense step, steps of some rows, of all rows and of none.
struct Updated {
  Updated(OnDevice& f, const std::string& config) {
    const auto o = optimizer(config);
    const auto last = static_cast<int32_t>(f.params.at("w").shape()[0] - 1);
    std::vector<int32_t> some{0}, all, none;
    if (last > 0) some = {last, 0};
    for (int32_t r = 0; r <= last; ++r) all.push_back(r);
    uint64_t step = 0;
    for (const std::vector<int32_t>* rows : std::vector<const std::vector<int32_t>*>{nullptr, &some, &all, &none}) {
      f.set_gradients(++step, rows);
      for (const std::string& name : f.params.names())
        o->update(f.ctx, f.params.at(name), 0.1, static_cast<int64_t>(step), step == 2 ? 0.25 : 1);
    }
    values = f.read(parameter_values(f.params));
    state = f.read(o->state());
  }
  std::map<std::string, std::vector<double>> values, state;
};

TEST_F(DeviceOptim, UpdatesEqualTheCpu) {
  for (const DType type : {DType::f64, DType::f32}) {
    for (const Shape& s : kShapes) {
      for (const char* config : all_optimizers()) {
        SCOPED_TRACE(str(config, ' ', s, ' ', name_of(type)));
        OnDevice cpu(kCpu, type, s[0], s[1]), cuda(kCuda, type, s[0], s[1]);
        const Updated want(cpu, config), got(cuda, config);
        expect_equal(got.values, want.values, tolerance_of(type));
        expect_equal(got.state, want.state, tolerance_of(type));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// `count` parameters with 1 to 5,000 elements: every third has a gradient of some rows, one of no rows, and one none.
struct ManyParameters {
  ManyParameters(Device::Kind kind, DType type, int64_t count) : f(kind, type, 2, 3) {
    for (int64_t k = 0; k < count; ++k) {
      Var& p = f.params.add(f.ctx, {str("p", k), {1 + k % 7, 1 + (k * k) % 711}, {"normal", 1.0}}, RandomKey(3));
      const auto seed = static_cast<uint64_t>(k);
      if (k == 4) continue;
      if (k % 3 != 0) {
        p.grad().dense = f.random(p.shape(), seed);
      } else {
        const std::vector<int32_t> rows =
            k == 6 ? std::vector<int32_t>{} : std::vector<int32_t>{static_cast<int32_t>(k % 7)};
        p.grad().pieces.push_back({rows, f.random({static_cast<int64_t>(rows.size()), p.shape()[1]}, seed), true});
      }
    }
  }
  std::vector<ParameterUpdate> updates() {
    std::vector<ParameterUpdate> all;
    for (const std::string& name : f.params.names()) all.push_back({&f.params.at(name), {all.size() % 2 ? 0.5 : 1.0}});
    return all;
  }
  std::vector<const Var*> all() const {
    std::vector<const Var*> all;
    for (const std::string& name : f.params.names()) all.push_back(&f.params.at(name));
    return all;
  }
  OnDevice f;
};

// Few launches and one upload for many parameters, and the bits of an update of each parameter alone.
TEST_F(DeviceOptim, ManyParametersAreUpdatedTogether) {
  constexpr int64_t kCount = 100;
  for (const DType type : {DType::f64, DType::f32}) {
    for (const char* config : kOfElements) {
      SCOPED_TRACE(str(config, ' ', name_of(type)));
      ManyParameters together(kCuda, type, kCount), single(kCuda, type, kCount), cpu(kCpu, type, kCount);
      const auto a = optimizer(config), b = optimizer(config), c = optimizer(config);
      const DeviceCounts before = cuda_device(0).counts();
      a->update_all(together.f.ctx, together.updates(), 0.1, 1);
      const DeviceCounts counts = cuda_device(0).counts().since(before);
      EXPECT_EQ(counts.uploads.times, 1);
      EXPECT_LE(counts.all_launches() - (counts.launches.contains("fill") ? counts.launches.at("fill") : 0), 4);
      for (const auto& u : single.updates()) b->update(single.f.ctx, *u.param, 0.1, 1, u.grad_scale.number);
      for (const auto& u : cpu.updates()) c->update(cpu.f.ctx, *u.param, 0.1, 1, u.grad_scale.number);
      const auto values = together.f.read(parameter_values(together.f.params));
      expect_equal(values, single.f.read(parameter_values(single.f.params)), 0);
      expect_equal(values, cpu.f.read(parameter_values(cpu.f.params)), tolerance_of(type));
      expect_equal(together.f.read(a->state()), single.f.read(b->state()), 0);
      if (HasFatalFailure()) return;
    }
  }
}

// Few launches for many averages, one upload of rows and one of their steps, and the bits of each average alone.
TEST_F(DeviceOptim, ManyAveragesAreUpdatedTogether) {
  constexpr int64_t kCount = 100;
  for (const DType type : {DType::f64, DType::f32}) {
    ManyParameters together(kCuda, type, kCount), single(kCuda, type, kCount), cpu(kCpu, type, kCount);
    Ema a(together.f.params, 0.9, ParamPattern(".*")), b(single.f.params, 0.9, ParamPattern(".*")),
        c(cpu.f.params, 0.9, ParamPattern(".*"));
    const auto o = optimizer("name: sgd");
    for (int64_t step = 1; step <= 3; ++step) {
      const DeviceCounts before = cuda_device(0).counts();
      a.before_update(together.f.ctx, together.all());
      const DeviceCounts counts = cuda_device(0).counts().since(before);
      EXPECT_EQ(counts.uploads.times, 2) << "step " << step;
      EXPECT_EQ(counts.all_launches(), step == 1 ? 1 : 2) << "step " << step;  // no steps of dense averages are missing
      for (const Var* param : single.all()) b.before_update(single.f.ctx, {&param, 1});
      c.before_update(cpu.f.ctx, cpu.all());
      for (ManyParameters* m : {&together, &single, &cpu}) o->update_all(m->f.ctx, m->updates(), 0.1, step);
      for (Ema* ema : {&a, &b, &c}) ema->count_update();
    }
    const auto averages = together.f.read(a.state(together.f.ctx, together.f.params));
    expect_equal(averages, single.f.read(b.state(single.f.ctx, single.f.params)), 0);
    expect_equal(averages, cpu.f.read(c.state(cpu.f.ctx, cpu.f.params)), tolerance_of(type));
    if (HasFatalFailure()) return;
  }
}

// The state of a run on the device continues on the host, and the other way round.
TEST_F(DeviceOptim, StateMovesBetweenDevices) {
  for (const auto& [from, to] : {std::pair(kCuda, kCpu), std::pair(kCpu, kCuda), std::pair(kCuda, kCuda)}) {
    OnDevice a(from, DType::f32, 4, 9), b(to, DType::f32, 4, 9);
    const auto o = optimizer("name: adam"), restored = optimizer("name: adam");
    a.set_gradients(1);
    for (const std::string& name : a.params.names()) o->update(a.ctx, a.params.at(name), 0.1, 1);
    const lmx_test::TempFolder folder;
    const std::string file = folder.path("state.safetensors");
    for (const bool slots : {false, true}) {
      save_safetensors(file, slots ? o->state() : parameter_values(a.params), {});
      const StateDict loaded = load_safetensors(file, Allocator::cpu());
      slots ? restored->load(b.ctx, b.params, loaded) : load_parameters(b.params, loaded, "test");
    }
    expect_equal(b.read(parameter_values(b.params)), a.read(parameter_values(a.params)), 0);
    expect_equal(b.read(restored->state()), a.read(o->state()), 0);
    for (const auto& [name, t] : restored->state()) EXPECT_EQ(t.device().kind, to) << name;
  }
}

TEST_F(DeviceOptim, NormsAndFactorsEqualTheCpu) {
  for (const DType type : {DType::f64, DType::f32}) {
    for (const Shape& s : std::vector<Shape>{{1, 1}, {5, 37}, {130, 300}}) {  // the last: three parts
      SCOPED_TRACE(str(s, ' ', name_of(type)));
      OnDevice cpu(kCpu, type, s[0], s[1]), cuda(kCuda, type, s[0], s[1]);
      const std::vector<int32_t> row{0}, none;
      for (const std::vector<int32_t>* rows : std::vector<const std::vector<int32_t>*>{nullptr, &row, &none}) {
        std::vector<ClipResult> results;
        for (OnDevice* f : {&cpu, &cuda}) {
          f->set_gradients(1, rows);
          results.push_back(
              measure_gradients(f->ctx, f->params, rules("[{params: b, norm: 0.1}, {params: w, norm: 2}]")));
        }
        EXPECT_TRUE(results[1].finite);
        const double tolerance = type == DType::f64 ? 1e-12 : 1e-6;
        EXPECT_NEAR(results[1].norm, results[0].norm, tolerance * results[0].norm);
        ASSERT_EQ(results[1].factors.size(), results[0].factors.size());
        for (const auto& [name, factor] : results[0].factors)
          EXPECT_NEAR(results[1].factor(name), factor, tolerance * factor) << name;
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(DeviceOptim, GradientsWithoutValuesAndOfBothTypesAreMeasured) {
  Context ctx = context_on(kCuda);
  ParameterStore params;
  EXPECT_EQ(measure_gradients(ctx, params, {}).norm, 0);
  for (const DType type : {DType::f32, DType::f64}) {
    ctx.compute = type;
    const std::string name(name_of(type));
    params.add(ctx, {name, {3}, {"zeros", 0}}, RandomKey(1)).grad().dense =
        ctx.upload(type == DType::f32 ? Tensor::from<float>(ctx.host, {3}, std::vector<float>{1, 2, 2})
                                      : Tensor::from<double>(ctx.host, {3}, std::vector<double>{4, 4, 2}));
  }
  EXPECT_NEAR(measure_gradients(ctx, params, {}).norm, std::sqrt(45.0), 1e-12);
}

TEST_F(DeviceOptim, OneValueThatIsNotFiniteIsFound) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    OnDevice f(kCuda, DType::f64, 130, 300);
    f.set_gradients(1);
    Tensor g = copy_to(f.params.at("w").grad().dense, Allocator::cpu());
    g.values<double>()[130 * 300 - 1] = bad;
    f.params.at("w").grad().dense = copy_to(g, f.ctx.allocator);
    EXPECT_FALSE(measure_gradients(f.ctx, f.params, {}).finite);
  }
}

// A factor of the device and the same one of the host give the same bits. The host waits for no factor.
TEST_F(DeviceOptim, ClipsWithoutAWait) {
  const auto clip = rules("[{params: '^p[0-4]', norm: 0.5}, {params: '^p5', norm: 1e9}, {params: '^p6', norm: 0}]");
  constexpr double kUnscale = 0.3;
  for (const DType type : {DType::f64, DType::f32}) {
    for (const char* config : all_optimizers()) {
      SCOPED_TRACE(str(config, ' ', name_of(type)));
      ManyParameters device(kCuda, type, 70), host(kCuda, type, 70);
      const auto a = optimizer(config), b = optimizer(config);
      const DeviceCounts before = cuda_device(0).counts();
      const GradientMeasure measure(device.f.ctx, device.f.params, clip, kUnscale);
      std::vector<ParameterUpdate> updates;
      for (const ParameterUpdate& u : device.updates())
        if (!u.param->grad().empty()) updates.push_back({u.param, measure.scale(u.param->name())});
      a->update_all(device.f.ctx, updates, 0.1, 1);
      EXPECT_EQ(cuda_device(0).counts().since(before).waits, 0);
      const ClipResult result = measure_gradients(host.f.ctx, host.f.params, clip, kUnscale);
      EXPECT_GT(result.factors.size(), 20u);
      EXPECT_FALSE(result.factors.contains("p5") || result.factors.contains("p6"));
      for (const ParameterUpdate& u : host.updates())
        b->update(host.f.ctx, *u.param, 0.1, 1, result.factor(u.param->name()));
      expect_equal(device.f.read(parameter_values(device.f.params)), host.f.read(parameter_values(host.f.params)), 0);
      expect_equal(device.f.read(a->state()), host.f.read(b->state()), 0);
      EXPECT_EQ(measure.result().factors, result.factors);
      EXPECT_EQ(measure.result().norm, result.norm);
      if (HasFatalFailure()) return;
    }
  }
}

// The sums of the squares of the same gradients, and so the factors, have the same bits on both devices if they are
// exact: here powers of 2.
TEST_F(DeviceOptim, FactorsHaveTheBitsOfTheCpu) {
  std::vector<ClipResult> results;
  for (const Device::Kind kind : {kCpu, kCuda}) {
    Context ctx = context_on(kind);
    ParameterStore params;
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      Tensor g = Tensor::empty(Allocator::cpu(), {40'000}, DType::f32);
      initialise(g, {"constant", std::ldexp(1.0, name[0] - 'e')}, RandomKey(1));
      params.add(ctx, {name, {40'000}, {"zeros", 0}}, RandomKey(1)).grad().dense = copy_to(g, ctx.allocator);
    }
    results.push_back(measure_gradients(
        ctx, params, rules("[{params: '[ca]', norm: 0.7}, {params: nothing, norm: 1}, {params: '[de]', norm: 3}]"),
        0.7));
  }
  EXPECT_EQ(results[0].factors.size(), 4u);
  EXPECT_EQ(results[0].factors, results[1].factors);
  EXPECT_EQ(results[0].norm, results[1].norm);
}

// Neither values nor state change, whichever gradient has the value, and although some parameter is not clipped.
TEST_F(DeviceOptim, AGradientThatIsNotFiniteChangesNothing) {
  for (const auto& [kind, type] :
       {std::pair(kCpu, DType::f32), std::pair(kCuda, DType::f32), std::pair(kCuda, DType::f64)}) {
    for (const char* config : all_optimizers()) {
      for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        OnDevice f(kind, type, 5, 9);
        const auto o = optimizer(config);
        const std::vector<int32_t> rows{3, 1};
        const auto update = [&](int64_t number) {
          const GradientMeasure measure(f.ctx, f.params, rules("[{params: b, norm: 0.1}]"));
          std::vector<ParameterUpdate> updates;
          for (const char* name : {"w", "b"}) updates.push_back({&f.params.at(name), measure.scale(name)});
          o->update_all(f.ctx, updates, 0.1, number);
        };
        f.set_gradients(1, &rows);
        update(1);
        const auto values = f.read(parameter_values(f.params)), state = f.read(o->state());
        f.set_gradients(2, &rows);
        Tensor g = Tensor::empty(Allocator::cpu(), {9}, type);
        initialise(g, {"constant", bad}, RandomKey(1));
        f.params.at("b").grad().dense = copy_to(g, f.ctx.allocator);
        update(2);
        expect_equal(f.read(parameter_values(f.params)), values, 0);
        expect_equal(f.read(o->state()), state, 0);
        f.set_gradients(2, &rows);
        update(2);
        EXPECT_NE(f.read(parameter_values(f.params)), values);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// An optimizer that does not read factors on the device.
class HalfOf final : public Optimizer {
 public:
  void update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) override {
    ++updates;
    own_->update(ctx, param, lr, number, grad_scale / 2);
  }
  StateDict state() const override { return own_->state(); }
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) override {
    own_->load(ctx, params, state);
  }
  int updates = 0;

 private:
  std::unique_ptr<Optimizer> own_ = optimizer("name: sgd");
};

TEST_F(DeviceOptim, OtherOptimizersGetFactorsFromTheHost) {
  OnDevice a(kCuda, DType::f64, 5, 9), b(kCuda, DType::f64, 5, 9);
  HalfOf half;
  for (const bool finite : {true, false}) {
    for (OnDevice* f : {&a, &b}) f->set_gradients(1);
    if (!finite)
      for (OnDevice* f : {&a, &b}) {
        Tensor g = Tensor::empty(Allocator::cpu(), {9}, DType::f64);
        initialise(g, {"constant", std::numeric_limits<double>::infinity()}, RandomKey(1));
        f->params.at("b").grad().dense = copy_to(g, f->ctx.allocator);
      }
    const auto clip = rules("[{params: w, norm: 0.1}]");
    const GradientMeasure measure(a.ctx, a.params, clip, 0.7);
    std::vector<ParameterUpdate> updates;
    for (const char* name : {"w", "b"}) updates.push_back({&a.params.at(name), measure.scale(name)});
    half.update_all(a.ctx, updates, 0.1, 1);
    const ClipResult result = measure_gradients(b.ctx, b.params, clip, 0.7);
    if (finite)
      for (const char* name : {"w", "b"})
        optimizer("name: sgd")->update(b.ctx, b.params.at(name), 0.1, 1, result.factor(name) / 2);
    EXPECT_EQ(half.updates, 2);
    expect_equal(a.read(parameter_values(a.params)), b.read(parameter_values(b.params)), 0);
  }
}

// The host reads one number for each parameter, a factor and the sum, and no gradients.
TEST_F(DeviceOptim, OverflowsAreFoundOnTheDevice) {
  OnDevice f(kCuda, DType::f32, 30, 40);
  const std::vector<int32_t> row{3};
  f.set_gradients(1, &row);
  EXPECT_TRUE(measure_gradients(f.ctx, f.params, {}).not_finite.empty());
  Tensor g = copy_to(f.params.at("w").grad().pieces[0].rows, Allocator::cpu());
  g.values<float>()[39] = std::numeric_limits<float>::infinity();
  f.params.at("w").grad().pieces[0].rows = copy_to(g, f.ctx.allocator);
  const DeviceCounts before = cuda_device(0).counts();
  EXPECT_EQ(measure_gradients(f.ctx, f.params, {}).not_finite, std::vector<std::string>{"w"});
  EXPECT_EQ(cuda_device(0).counts().since(before).downloads.bytes, 4 * 8);
}

// The averages after dense and row-sparse updates, and the values while they are exchanged.
struct Averaged {
  Averaged(OnDevice& f, double decay) {
    const auto o = optimizer("name: sgd");
    Ema ema(f.params, decay, ParamPattern(".*"));
    const std::vector<int32_t> rows{0};
    for (uint64_t step = 1; step <= 70; ++step) {
      const bool dense = step == 1;
      if (!dense && step % 30 != 0) {  // most updates change nothing, so many averaging steps are computed at once
        ema.count_update();
        continue;
      }
      f.set_gradients(step, dense ? nullptr : &rows);
      for (const std::string& name : f.params.names()) {
        ema.before_update(f.ctx, std::array<const Var*, 1>{&f.params.at(name)});
        o->update(f.ctx, f.params.at(name), 0.1, static_cast<int64_t>(step));
      }
      ema.count_update();
    }
    averages = f.read(ema.state(f.ctx, f.params));
    ema.swap(f.ctx, f.params);
    swapped = f.read(parameter_values(f.params));
    ema.swap(f.ctx, f.params);
    StateDict host;
    for (const auto& [name, t] : ema.state(f.ctx, f.params)) host.emplace(name, copy_to(t, Allocator::cpu()));
    Ema loaded(f.params, decay, ParamPattern(".*"));
    loaded.load(host);
    reloaded = f.read(loaded.state(f.ctx, f.params));
  }
  std::map<std::string, std::vector<double>> averages, swapped, reloaded;
};

TEST_F(DeviceOptim, MovingAveragesEqualTheCpu) {
  for (const DType type : {DType::f64, DType::f32}) {
    for (const Shape& s : kShapes) {
      for (const double decay : {0.01, 0.99}) {  // with 0.01 the average reaches its fixed point
        SCOPED_TRACE(str(s, ' ', name_of(type), ' ', decay));
        OnDevice cpu(kCpu, type, s[0], s[1]), cuda(kCuda, type, s[0], s[1]);
        const Averaged want(cpu, decay), got(cuda, decay);
        expect_equal(got.averages, want.averages, tolerance_of(type));
        expect_equal(got.swapped, want.averages, tolerance_of(type));
        expect_equal(got.reloaded, got.averages, 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Initial values have the bits of the CPU's; replicas and copies stay on their device.
TEST_F(DeviceOptim, ParametersStartAsOnTheCpu) {
  for (const char* kind : {"zeros", "ones", "constant", "uniform", "normal", "xavier_uniform", "xavier_normal"}) {
    std::vector<std::vector<double>> values;
    for (const Device::Kind device : {kCpu, kCuda}) {
      Context ctx = context_on(device);
      ParameterStore params;
      params.add(ctx, {"w", {7, 33}, {kind, 0.3}}, RandomKey(5));
      const ParameterStore copy = params.copy(ctx);
      EXPECT_EQ(copy.at("w").value().device().kind, device);
      values.push_back(values_of(ctx, params.at("w").value()));
      EXPECT_EQ(values_of(ctx, copy.at("w").value()), values.back());
    }
    EXPECT_EQ(values[0], values[1]) << kind;
  }
}

TEST_F(DeviceOptim, AStaleReplicaMayBeOnTheHost) {
  OnDevice f(kCuda, DType::f32, 3, 5);
  Context host;
  EXPECT_EQ(values_of(host, f.params.copy(host).at("w").value()), f.value("w"));
}

}  // namespace
}  // namespace lmx
