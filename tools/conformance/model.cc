// Checks of models: shapes, gradients against finite differences in f64, independence of rows, state that is carried.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "backend/cuda.h"
#include "conformance/conformance.h"
#include "lmx/model.h"
#include "lmx/ops.h"

namespace lmx::app::conformance {
namespace {

// On a CUDA device: the same values as on the CPU, up to rounding.

// A device adds up in another order than the CPU and has other functions for exp and tanh.
constexpr double kTolerance = 1e-3;

using Values = std::vector<double>;

Values values_of(const Context& ctx, const Tensor& t) {
  if (t.numel() == 0) return {};
  if (t.dtype() == DType::f64) return {t.values<double>().begin(), t.values<double>().end()};
  const Reading<float> read = ctx.read<float>(t);
  return {read.get().begin(), read.get().end()};
}

// The dense form of a gradient.
Values gradient_of(const Context& ctx, const Var& v) {
  Values sum(static_cast<size_t>(v.value().numel()));
  const auto add = [&](size_t at, double x) { sum.at(at) += x; };
  if (v.grad().dense.defined()) {
    const Values dense = values_of(ctx, v.grad().dense);
    for (size_t i = 0; i < dense.size(); ++i) add(i, dense[i]);
  }
  const auto width = static_cast<size_t>(v.value().numel() / v.value().dim(0));
  for (const RowSparse& piece : v.grad().pieces) {
    const Values rows = values_of(ctx, piece.rows);
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

  Values forward(bool training) {
    ctx_.training = training;
    const Batch b = model_->translates() ? pair_batch() : text_batch();
    ModelState state = model_->initial_state(ctx_, b.sequences());
    return values_of(ctx_, model_->forward(ctx_, params_, b, state).value());
  }

  // The gradient of each parameter, of the features weighted by fixed numbers.
  std::map<std::string, Values> gradients() {
    ctx_.training = true;
    const Batch b = model_->translates() ? pair_batch() : text_batch();
    Tape tape;
    ctx_.tape = &tape;
    ModelState state = model_->initial_state(ctx_, b.sequences());
    const Var f = model_->forward(ctx_, params_, b, state);
    const Tensor weights = ctx_.upload(normal_values(f.shape(), DType::f32, 9));
    tape.backward(ctx_, sum(ctx_, multiply(ctx_, f, Var(weights))));
    ctx_.tape = nullptr;
    std::map<std::string, Values> all;
    for (const std::string& name : params_.names()) all[name] = gradient_of(ctx_, params_.at(name));
    return all;
  }

  // The state after the first half of the text, and the features of the second half, which begins with it.
  std::map<std::string, Values> states() {
    ctx_.training = false;
    ModelState state = model_->initial_state(ctx_, kSequences);
    std::map<std::string, Values> all;
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
double apart(const Values& device, const Values& cpu, const std::string& what) {
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

std::string compare(const std::map<std::string, Values>& device, const std::map<std::string, Values>& cpu) {
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

namespace {

class ModelCheck {
 public:
  explicit ModelCheck(const Subject& s)
      : model_(create<ModelFactory>(s.plugin, s.config, "model", ModelEnv{kVocabulary})) {
    ctx_.key = RandomKey(7);
    for (const ParameterSpec& spec : model_->parameters()) params_.add(ctx_, spec, RandomKey(1).fold("init"));
  }

  void run(Report& report) {
    report.run("parameters", [&] { return parameters(); });
    report.run("shapes", [&] { return shapes(); });
    report.run("determinism", [&] { return determinism(); });
    report.run("rows", [&] { return rows(); });
    report.run("noise", [&] { return noise(); });
    report.run("causality", [&] { return causality(); });
    report.run("state", [&] { return state(); });
    report.run("documents", [&] { return documents(); });
    report.run("decoding", [&] { return decoding(); });
    report.run("gradients", [&] { return gradients(); });
  }

 private:
  Batch batch(int64_t first = 0, int64_t last = kSequences) const {
    return model_->translates() ? pair_batch(first, last) : text_batch(first, last);
  }
  Tensor features(const Batch& b, bool training = false) {
    ctx_.training = training;
    ModelState state = model_->initial_state(ctx_, b.sequences());
    return model_->forward(ctx_, params_, b, state).value();
  }

  std::string parameters() const {
    std::set<std::string> names;
    for (const ParameterSpec& spec : model_->parameters()) {
      if (!names.insert(spec.name).second) fail("two parameters are called ", spec.name);
      if (spec.shape.numel() <= 0) fail(spec.name, " is ", spec.shape);
    }
    if (names.empty()) fail("the model has no parameters");
    return str(names.size(), " parameters, ", params_.count(), " numbers");
  }

  std::string shapes() {
    const Batch b = batch();
    const Tensor f = features(b);
    const Shape expected{b.tokens(), model_->feature_size()};
    if (f.shape() != expected)
      fail("features are ", f.shape(), ", expected ", expected, ": one row a token, feature_size() wide");
    for (int64_t i = 0; i < f.numel(); ++i)
      if (!std::isfinite(at(f, i))) fail("feature ", i, " is ", at(f, i));
    for (const auto& [name, t] : model_->initial_state(ctx_, kSequences))
      if (t.rank() < 1 || t.dim(0) != kSequences)
        fail("the state ", name, " of ", kSequences, " sequences is ", t.shape());
    return str("features ", f.shape());
  }

  std::string determinism() {
    for (const bool training : {false, true})
      if (difference(features(batch(), training), features(batch(), training)) != 0)
        fail("two forwards of the same batch differ", training ? " in training: noise must come from ctx.key" : "");
    return "equal in every bit, in training as well";
  }

  std::string rows() {
    const Tensor all = features(batch()), last = features(batch(kSequences - 1, kSequences));
    const double d = difference(all.slice(all.dim(0) - last.dim(0), all.dim(0)), last);
    if (!(d < 1e-4))
      fail("a sequence's features depend on the other sequences of its batch (by ", d, " of their size)");
    return "a sequence is the same in any company";
  }

  // Ranks and micro-batches contain slices of a step's batch, and must sample the same dropout masks as the whole
  // batch.
  std::string noise() {
    const Tensor all = features(batch(), true), last = features(batch(kSequences - 1, kSequences), true);
    const double d = difference(all.slice(all.dim(0) - last.dim(0), all.dim(0)), last);
    if (!(d < 1e-4))
      fail("in training a sequence gets other noise where other sequences are in its batch (by ", d,
           " of its features' size), so ranks would train another model; key dropout by the slot (batch.slots) and "
           "the position of an element, not by its index");
    if (difference(all, features(batch())) == 0)
      return "none with this config; --config '{dropout: 0.5}' or the like checks more";
    return "a sequence draws the same in any slice of its batch";
  }

  std::string causality() {
    Batch b = batch();
    const Tensor before = features(b);
    b.inputs = b.inputs.clone();
    b.inputs.data<int32_t>()[b.inputs.numel() - 1] ^= 1;  // the last token of the last sequence
    const Tensor after = features(b);
    const double d = difference(before.slice(0, before.dim(0) - 1), after.slice(0, after.dim(0) - 1));
    if (!(d < 1e-6))
      fail("features of earlier positions change with a later token (by ", d,
           " of their size): the model sees its targets");
    return "no position sees a later one";
  }

  std::string state() {
    ModelState state = model_->initial_state(ctx_, kSequences);
    if (state.empty()) throw Skipped("the model keeps none");
    ctx_.training = false;
    const Tensor whole = features(text_batch());
    const int64_t half = kLength / 2, d = model_->feature_size();
    const Tensor first = model_->forward(ctx_, params_, text_batch(0, kSequences, 0, half), state).value();
    Batch rest = text_batch(0, kSequences, half, kLength);
    rest.fresh.assign(rest.fresh.size(), 0);
    const Tensor second = model_->forward(ctx_, params_, rest, state).value();
    double apart = 0;
    for (int64_t s = 0; s < kSequences; ++s) {
      const Tensor row = whole.reshape({kSequences, kLength * d}).slice(s, s + 1).reshape({kLength, d});
      apart = std::max(
          {apart,
           difference(row.slice(0, half), first.reshape({kSequences, half * d}).slice(s, s + 1).reshape({half, d})),
           difference(
               row.slice(half, kLength),
               second.reshape({kSequences, (kLength - half) * d}).slice(s, s + 1).reshape({kLength - half, d}))});
    }
    if (!(apart < 1e-4))
      fail("a sequence in two halves, its state carried, gives other features (by ", apart, " of their size)");
    return str(state.size(), " tensors; two halves make the whole");
  }

  // The second half of each sequence as a document is that half as a sequence.
  std::string documents() {
    if (!model_->separates_documents()) throw Skipped("the model does not separate documents");
    const int64_t half = kLength / 2, d = model_->feature_size();
    Batch whole = text_batch();
    for (int64_t s = 0; s < kSequences; ++s) whole.documents.insert(whole.documents.end(), {half, kLength - half});
    const Tensor all = features(whole), rest = features(text_batch(0, kSequences, half, kLength));
    double apart = 0;
    for (int64_t s = 0; s < kSequences; ++s) {
      const int64_t end = (s + 1) * kLength;
      const Tensor own = rest.reshape({kSequences, (kLength - half) * d}).slice(s, s + 1);
      apart = std::max(apart, difference(all.slice(end - (kLength - half), end).reshape(own.shape()), own));
    }
    if (!(apart < 1e-4))
      fail("a document's features depend on the documents before it in a window (by ", apart,
           " of their size): attention and positions must follow batch.document_lengths()");
    return "a document in a window has the features that it has alone";
  }

  std::string decoding() {
    ctx_.training = false;
    const Batch b = batch(0, 1);
    const Tensor whole = features(b);
    for (const int64_t prompt : {int64_t{0}, b.tokens() / 2}) {
      const auto decoding = model_->translates() ? model_->decode(ctx_, params_, b.source, b.source_lengths)
                                                 : start_text(*model_, ctx_, params_, 1);
      if (!decoding) throw Skipped("the model keeps nothing of a text (TextModel of lmx/model.h)");
      const int32_t* const ids = b.inputs.data<int32_t>();
      if (prompt > 0)
        compare_step(decoding->read(ctx_, std::span(ids, static_cast<size_t>(prompt)), 1), whole, prompt - 1, "read()");
      for (int64_t i = prompt; i < b.tokens(); ++i)
        compare_step(decoding->step(ctx_, std::span(ids + i, 1)), whole, i,
                     prompt > 0 ? "step() after read()" : "step()");
    }
    return "a prompt at once and step by step as in one forward";
  }

  // `whole`: features of all positions.
  void compare_step(const Tensor& step, const Tensor& whole, int64_t position, const char* call) {
    if (step.shape() != Shape{1, model_->feature_size()}) fail(call, " of decoding returns features ", step.shape());
    const double d = difference(step, whole.slice(position, position + 1));
    if (!(d < 1e-3))
      fail(call, " of decoding gives other features at position ", position, " than forward() (by ", d,
           " of their size)");
  }

  // Returns the loss of the gradient check: the features weighted by fixed numbers.
  Var weighted(Context& ctx, const Batch& b) {
    ModelState state = model_->initial_state(ctx, b.sequences());
    for (auto& [name, t] : state) t = t.to(DType::f64);
    const Var f = model_->forward(ctx, params_, b, state);
    return sum(ctx, multiply(ctx, f, Var(normal_values(f.shape(), DType::f64, 9))));
  }
  double loss(const Batch& b) {
    Context ctx = f64();
    return *weighted(ctx, b).value().data<double>();
  }
  Context f64(Tape* tape = nullptr) const {
    Context ctx;
    ctx.compute = DType::f64;
    ctx.key = RandomKey(7);
    ctx.tape = tape;
    return ctx;
  }

  // Compares a gradient with the central difference of one element. The smaller step is for elements near a kink of
  // relu.
  bool agrees(Var& v, int64_t i, double analytic, const Batch& b, double& numeric) {
    double* x = v.value().data<double>();
    const double kept = x[i];
    for (const double h : {1e-5, 1e-7}) {
      double side[2];
      for (int s = 0; s < 2; ++s) {
        x[i] = kept + (s ? -h : h);
        v.changed();
        side[s] = loss(b);
      }
      x[i] = kept;
      v.changed();
      numeric = (side[0] - side[1]) / (2 * h);
      const double scale = std::max({1.0, std::abs(analytic), std::abs(numeric)});
      if (std::abs(analytic - numeric) <= 1e-5 * scale) return true;
    }
    return false;
  }

  std::string gradients() {
    const size_t elements = params_.count() > 200'000 ? 2 : 12;  // of each parameter
    const Batch b = batch();
    for (const std::string& name : params_.names())
      params_.at(name) = Var(params_.at(name).value().to(DType::f64), true, name);
    Tape tape;
    Context ctx = f64(&tape);
    Var total;
    try {
      total = weighted(ctx, b);
    } catch (const std::exception& e) {
      throw Skipped(str("the model does not compute in f64: ", e.what()));
    }
    tape.backward(ctx, total);
    int64_t checked = 0;
    for (const std::string& name : params_.names()) {
      Var& v = params_.at(name);
      if (v.grad().empty() && name != model_->output_table()) fail("no gradient reaches the parameter ", name);
      if (!v.grad().empty()) check_form(v.grad(), params_.spec(name));
      const Values g = gradient_of(ctx, v);
      std::vector<int64_t> places;  // some at regular intervals, some with a gradient that is not 0
      const int64_t n = v.value().numel();
      for (int64_t i = 0; i < n; i += std::max<int64_t>(1, n / static_cast<int64_t>(elements))) places.push_back(i);
      for (int64_t i = 0; i < n && places.size() < 2 * elements; ++i)
        if (g[static_cast<size_t>(i)] != 0 && i % 7 == 0) places.push_back(i);
      for (const int64_t i : places) {
        double numeric = 0;
        const double analytic = g[static_cast<size_t>(i)];
        if (!agrees(v, i, analytic, b, numeric))
          fail(name, "[", i, "] of ", v.shape(), ": backward gives ", analytic, ", the difference quotient ", numeric);
        ++checked;
      }
    }
    return str(checked, " elements of ", params_.names().size(), " parameters against difference quotients in f64");
  }

  std::unique_ptr<Model> model_;
  Context ctx_;
  ParameterStore params_;
};

}  // namespace

void check_model(Report& report, const Subject& subject) {
  std::unique_ptr<ModelCheck> check;
  report.run("construction", [&] {
    check = std::make_unique<ModelCheck>(subject);
    return str("with a vocabulary of ", kVocabulary);
  });
  if (check) check->run(report);
}

}  // namespace lmx::app::conformance
