// 50 updates of each optimizer against the golden values of tools/dev/parity/optimizers.py, on the CPU and on a CUDA
// device.
#include <cmath>
#include <map>
#include <span>

#include "device.h"
#include "lmx/optim.h"
#include "optim/configs.h"
#include "runfiles/checkpoint.h"
#include "test.h"

namespace lmx {
namespace {

using lmx_test::context_on;
using lmx_test::values_of;

struct ReferenceCase {
  std::string name, config;
};

std::vector<ReferenceCase> reference_cases() {
  return {{"muon", "name: muon"},
          {"muon_rms", "{name: muon, scale: rms, weight_decay: 0.1, nesterov: false, momentum: 0.9}"},
          {"muon_dion", "{name: muon, scale: spectral, coefficients: dion}"},
          {"lion", "name: lion"},
          {"lion_decay", "{name: lion, betas: [0.95, 0.98], weight_decay: 0.1}"},
          {"lamb", "name: lamb"},
          {"lamb_betas", "{name: lamb, betas: [0.8, 0.95], eps: 1e-3, weight_decay: 0.1}"},
          {"lars", "name: lars"},
          {"lars_decay", "{name: lars, momentum: 0, weight_decay: 0.1, trust_coefficient: 0.02}"},
          {"adafactor", "name: adafactor"},
          {"adafactor_plain",
           "{name: adafactor, scale_parameter: false, weight_decay: 0.1, clip_threshold: 0.5, decay_rate: 0.6}"},
          {"schedule_free_warm", "name: schedule_free"},
          {"schedule_free_decay_warm", "{name: schedule_free, betas: [0.8, 0.95], weight_decay: 0.1, eps: 1e-3}"}};
}

const StateDict& golden_values() {
  static const StateDict all =
      load_safetensors(lmx_test::source_path("/tests/optim/golden/optimizers.safetensors"), Allocator::cpu());
  return all;
}

// The parameters of a case.
std::vector<ParameterSpec> specs_of(const std::string& name) {
  std::vector<ParameterSpec> all;
  for (const char* param : {"wide", "tall", "stacked", "vector"})
    if (const auto found = golden_values().find(str(name, '.', param)); found != golden_values().end())
      all.push_back({param, found->second.shape(), {"zeros", 0}});
  for (ParameterSpec& spec : all)
    if (spec.name == "stacked") spec.parts = {5, 3, 2};
  return all;
}

double reference_tolerance(const std::string& name, DType type) {
  if (type == DType::f64) return 1e-6;  // the golden values are f32
  return name.starts_with("muon") ? 1e-4 : 1e-5;
}

class ReferenceRun {
 public:
  ReferenceRun(const ReferenceCase& c, Device::Kind device, DType type)
      : ctx_(context_on(device, type)), name_(c.name) {
    for (const ParameterSpec& spec : specs_of(name_)) {
      params_.add(ctx_, spec, RandomKey(1));
      params_.at(spec.name).value() = there(golden_values().at(spec.name + ".initial"));
    }
    own_ = make_optimizer(lmx_test::yaml(c.config), "optimizer", specs_of(name_));
  }
  void update(int64_t first, int64_t last) {
    const auto rates = golden_values().at(name_.ends_with("_warm") ? "warm_rates" : "rates");
    for (int64_t t = first; t < last; ++t) {
      for (const std::string& param : params_.names()) {
        const Tensor all = golden_values().at(param + ".gradients");
        params_.at(param).grad().dense = there(all.slice(t, t + 1).reshape(params_.at(param).shape()));
        own_->update(ctx_, params_.at(param), std::as_const(rates).values<float>()[static_cast<size_t>(t)], t + 1,
                     t == 2 ? 0.25 : 1);
      }
    }
  }
  void expect_golden(const std::string& tail) const {
    const double tolerance = reference_tolerance(name_, ctx_.compute);
    for (const std::string& param : params_.names()) {
      SCOPED_TRACE(param + tail);
      const Tensor want = golden_values().at(str(name_, '.', param, tail)).to(DType::f64);
      lmx_test::expect_close(values_of(ctx_, params_.at(param).value()), values_of(ctx_, want), tolerance);
    }
  }
  std::map<std::string, std::vector<double>> values() const {
    std::map<std::string, std::vector<double>> all;
    for (const std::string& param : params_.names()) all[param] = values_of(ctx_, params_.at(param).value());
    return all;
  }
  // Continues from the values and the state of another one.
  void resume(const ReferenceRun& from) {
    for (const std::string& param : params_.names())
      params_.at(param).value().copy_from(from.params_.at(param).value());
    own_->load(ctx_, params_, from.own_->state());
  }
  // An update whose gradients are not finite.
  void update_not_finite(int64_t number) {
    const GradScale scale{1, there(Tensor::from<double>(ctx_.host, {1}, std::vector<double>{NAN}), DType::f64)};
    std::vector<ParameterUpdate> updates;
    for (const std::string& param : params_.names()) updates.push_back({&params_.at(param), scale});
    own_->update_all(ctx_, updates, 0.1, number);
  }
  std::map<std::string, std::vector<double>> state() const {
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, t] : own_->state()) all[name] = values_of(ctx_, t);
    return all;
  }
  void evaluate(bool on) { own_->evaluate(ctx_, params_, on); }

 private:
  Tensor there(const Tensor& t) const { return there(t, ctx_.compute == DType::f64 ? DType::f64 : DType::f32); }
  Tensor there(const Tensor& t, DType type) const { return ctx_.upload(t.to(type).clone()); }

  Context ctx_;
  std::string name_;
  ParameterStore params_;
  std::unique_ptr<Optimizer> own_;
};

void expect_reference(Device::Kind device) {
  for (const ReferenceCase& c : reference_cases()) {
    ASSERT_FALSE(specs_of(c.name).empty()) << c.name;
    for (const DType type : {DType::f64, DType::f32}) {
      SCOPED_TRACE(str(c.name, ' ', name_of(type)));
      ReferenceRun run(c, device, type);
      run.update(0, 50);
      run.expect_golden("");
      if (!c.name.starts_with("schedule_free")) continue;
      const auto before = run.values();
      run.evaluate(true);
      run.expect_golden(".average");
      run.evaluate(false);
      EXPECT_EQ(run.values(), before);
    }
  }
}

TEST(OptimizerReference, FiftyUpdatesEqualTheGoldenValues) {
  expect_reference(Device::Kind::cpu);
}

class DeviceOptimizerReference : public lmx_test::DeviceTest {};

TEST_F(DeviceOptimizerReference, FiftyUpdatesEqualTheGoldenValues) {
  expect_reference(Device::Kind::cuda);
}

void expect_unchanged(Device::Kind device) {
  for (const ReferenceCase& c : reference_cases()) {
    SCOPED_TRACE(c.name);
    ReferenceRun run(c, device, DType::f32);
    run.update(0, 3);
    const auto values = run.values(), state = run.state();
    run.update_not_finite(4);
    EXPECT_EQ(run.values(), values);
    EXPECT_EQ(run.state(), state);
  }
}

TEST(OptimizerReference, GradientsThatAreNotFiniteChangeNothing) {
  expect_unchanged(Device::Kind::cpu);
}

TEST_F(DeviceOptimizerReference, GradientsThatAreNotFiniteChangeNothing) {
  expect_unchanged(Device::Kind::cuda);
}

TEST(OptimizerReference, AResumedRunHasTheSameBits) {
  for (const ReferenceCase& c : reference_cases()) {
    SCOPED_TRACE(c.name);
    ReferenceRun whole(c, Device::Kind::cpu, DType::f32), first(c, Device::Kind::cpu, DType::f32),
        second(c, Device::Kind::cpu, DType::f32);
    whole.update(0, 10);
    first.update(0, 6);
    second.resume(first);
    second.update(6, 10);
    EXPECT_EQ(second.values(), whole.values());
  }
}

// A case without a test would be golden values that nothing compares.
TEST(OptimizerReference, EveryGoldenCaseIsCompared) {
  for (const auto& [name, t] : golden_values()) {
    const std::string owner = name.substr(0, name.find('.'));
    if (owner.ends_with("rates") || name.ends_with(".initial") || name.ends_with(".gradients")) continue;
    const auto cases = reference_cases();
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const ReferenceCase& c) { return c.name == owner; }))
        << name;
  }
}

}  // namespace
}  // namespace lmx
