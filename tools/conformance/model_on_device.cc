// Checks of a model on a CUDA device: the same values as on the CPU, up to rounding.
#include <algorithm>
#include <cmath>
#include <map>

#include "backend/cuda.h"
#include "conformance/conformance.h"
#include "lmx/model.h"
#include "lmx/ops.h"

namespace lmx_cli::check {
namespace {

using namespace lmx;

// A device adds up in another order than the CPU and has other functions for exp and tanh.
constexpr double kTolerance = 1e-3;

using Numbers = std::vector<double>;

Numbers values_of(const Context& ctx, const Tensor& t) {
  if (t.numel() == 0) return {};
  const Reading<float> read = ctx.read<float>(t);
  return {read.get().begin(), read.get().end()};
}

// The dense form of a gradient.
Numbers gradient_of(const Context& ctx, const Var& v) {
  Numbers sum(static_cast<size_t>(v.value().numel()));
  const auto add = [&](size_t at, double x) { sum.at(at) += x; };
  if (v.grad().dense.defined()) {
    const Numbers dense = values_of(ctx, v.grad().dense);
    for (size_t i = 0; i < dense.size(); ++i) add(i, dense[i]);
  }
  const auto width = static_cast<size_t>(v.value().numel() / v.value().dim(0));
  for (const RowSparse& piece : v.grad().pieces) {
    const Numbers rows = values_of(ctx, piece.rows);
    for (size_t i = 0; i < rows.size(); ++i)
      add(static_cast<size_t>(piece.indices[i / width]) * width + i % width, rows[i]);
  }
  return sum;
}

// A model on one device.
class ModelOnDevice {
 public:
  ModelOnDevice(const Subject& s, Device device)
      : model_(create<ModelFactory>(s.plugin, s.config, "model", ModelEnv{kVocabulary})) {
    compute_on(ctx_, device);
    ctx_.key = RandomKey(7);
    for (const ParameterSpec& spec : model_->parameters()) params_.add(ctx_, spec, RandomKey(1).fold("init"));
  }

  Numbers forward(bool training) {
    ctx_.training = training;
    const Batch b = model_->translates() ? pair_batch() : text_batch();
    ModelState state = model_->initial_state(ctx_, b.sequences());
    return values_of(ctx_, model_->forward(ctx_, params_, b, state).value());
  }

  // The gradient of each parameter, of the features weighted by fixed numbers.
  std::map<std::string, Numbers> gradients() {
    ctx_.training = true;
    const Batch b = model_->translates() ? pair_batch() : text_batch();
    Tape tape;
    ctx_.tape = &tape;
    ModelState state = model_->initial_state(ctx_, b.sequences());
    const Var f = model_->forward(ctx_, params_, b, state);
    Tensor weights = Tensor::empty(ctx_.host, f.shape(), DType::f32);
    for (int64_t i = 0; i < weights.numel(); ++i)
      weights.data<float>()[i] = static_cast<float>(RandomKey(9).normal(static_cast<uint64_t>(i)));
    tape.backward(ctx_, sum(ctx_, multiply(ctx_, f, Var(ctx_.upload(weights)))));
    ctx_.tape = nullptr;
    std::map<std::string, Numbers> all;
    for (const std::string& name : params_.names()) all[name] = gradient_of(ctx_, params_.at(name));
    return all;
  }

  // The state after the first half of the text, and the features of the second half, which begins with it.
  std::map<std::string, Numbers> states() {
    ctx_.training = false;
    ModelState state = model_->initial_state(ctx_, kSequences);
    std::map<std::string, Numbers> all;
    if (state.empty()) return all;
    const int64_t half = kLength / 2;
    static_cast<void>(model_->forward(ctx_, params_, text_batch(0, kSequences, 0, half), state));
    for (const auto& [name, t] : state) all["state " + name] = values_of(ctx_, t);
    Batch rest = text_batch(0, kSequences, half, kLength);
    rest.fresh.assign(rest.fresh.size(), 0);
    all["features after the state"] = values_of(ctx_, model_->forward(ctx_, params_, rest, state).value());
    return all;
  }

  bool translates() const { return model_->translates(); }

 private:
  std::unique_ptr<Model> model_;
  Context ctx_;
  ParameterStore params_;
};

// Returns the largest difference, divided by the largest value of the CPU.
double apart(const Numbers& device, const Numbers& cpu, const std::string& what) {
  if (device.size() != cpu.size())
    fail(what, ": ", device.size(), " values on the device, ", cpu.size(), " on the CPU");
  double largest = 1e-6, difference = 0;
  size_t worst = 0;
  for (size_t i = 0; i < cpu.size(); ++i) {
    largest = std::max(largest, std::abs(cpu[i]));
    const double d = std::isfinite(device[i]) ? std::abs(device[i] - cpu[i]) : INFINITY;
    if (d > difference) {
      difference = d;
      worst = i;
    }
  }
  if (!(difference <= kTolerance * largest))
    fail(what, "[", worst, "] is ", device[worst], " on the device and ", cpu[worst], " on the CPU");
  return difference / largest;
}

std::string compare(const std::map<std::string, Numbers>& device, const std::map<std::string, Numbers>& cpu) {
  double most = 0;
  for (const auto& [name, values] : cpu) {
    const auto found = device.find(name);
    if (found == device.end()) fail(name, " is missing on the device");
    most = std::max(most, apart(found->second, values, name));
  }
  return str(cpu.size(), " tensors, at most ", most, " of their size from the CPU");
}

}  // namespace

void check_model_on(Report& report, const Subject& subject, Device device) {
  report.run("device", [&] { return str(name_of(device), ", ", describe(cuda_device_info(device.index))); });
  std::unique_ptr<ModelOnDevice> there, here;
  report.run("on device", [&] {
    here = std::make_unique<ModelOnDevice>(subject, Device{});
    there = std::make_unique<ModelOnDevice>(subject, device);
    apart(there->forward(true), here->forward(true), "feature, in training");
    return str("features at most ", apart(there->forward(false), here->forward(false), "feature"),
               " of their size from the CPU");
  });
  if (!there) return;
  report.run("its gradients", [&] { return compare(there->gradients(), here->gradients()); });
  report.run("its states", [&] {
    if (here->translates()) throw Skipped("a model that translates carries none");
    const auto cpu = here->states();
    if (cpu.empty()) throw Skipped("the model keeps none");
    return compare(there->states(), cpu);
  });
}

}  // namespace lmx_cli::check
