// A model with a full softmax on given batches, in f64 if nothing else is asked for: loss, features and gradients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/optim.h"
#include "models/made_model.h"
#include "ops/gradcheck.h"

namespace lmx::testing {

class ModelOnBatches {
 public:
  struct Result {
    double loss = 0;
    std::vector<double> features;
    std::map<std::string, std::vector<double>> gradients;
  };
  ModelOnBatches(std::unique_ptr<Model> made, int64_t vocab, const std::string& loss_config, DType type)
      : model(std::move(made)) {
    ctx.compute = type;
    ctx.key = RandomKey(17);
    loss = make_loss(parse_yaml(loss_config, "test"), "loss",
                     {vocab, model->feature_size(), nullptr, model->parameters(), model->output_table()});
    for (const ParameterSpec& spec : all_parameters(model->parameters(), *loss)) {
      Var& v = params.add(ctx, spec, RandomKey(1));
      // Biases and gains that matter.
      if (v.value().rank() == 1 && type == DType::f64) {
        for (int64_t i = 0; i < v.value().numel(); ++i)
          v.value().data<double>()[i] += 0.1 * RandomKey(2).fold(spec.name).normal(static_cast<uint64_t>(i));
      }
    }
  }

  double loss_of(const Batch& batch) {
    ModelState state = model->initial_state(ctx, batch.sequences());
    const Var features = model->forward(ctx, params, batch, state);
    return *loss->forward(ctx, params, features, batch.targets.reshape({batch.tokens()}), {})
                .loss.value()
                .data<double>();
  }

  Result differentiate(const Batch& batch) {
    Tape tape;
    ctx.tape = &tape;
    ModelState state = model->initial_state(ctx, batch.sequences());
    const Var features = model->forward(ctx, params, batch, state);
    const Var value = loss->forward(ctx, params, features, batch.targets.reshape({batch.tokens()}), {}).loss;
    tape.backward(ctx, value);
    ctx.tape = nullptr;
    Result r{*value.value().data<double>(), {}, {}};
    const std::span<const double> f = features.value().values<double>();
    r.features.assign(f.begin(), f.end());
    for (const std::string& name : params.names()) r.gradients[name] = dense_gradient(params.at(name));
    params.clear_gradients();
    return r;
  }

  // Some elements of each parameter, against central differences.
  void expect_true_gradients(const Batch& batch) {
    const Result r = differentiate(batch);
    for (const std::string& name : params.names()) {
      Var& v = params.at(name);
      double* x = v.value().data<double>();
      const int64_t n = v.value().numel();
      for (int64_t i = 0; i < n; i += std::max<int64_t>(1, n / 5)) {
        const double kept = x[i], step = 1e-5;
        const auto at = [&](double value) {
          x[i] = value;
          v.changed();
          return loss_of(batch);
        };
        const double numeric = (at(kept + step) - at(kept - step)) / (2 * step);
        at(kept);
        const double analytic = r.gradients.at(name)[static_cast<size_t>(i)];
        EXPECT_NEAR(analytic, numeric, 2e-6 * std::max(1.0, std::abs(numeric))) << name << '[' << i << ']';
      }
    }
  }

  // Loss and gradients of the whole batch are the sums of those of its parts, and its features are those of the parts,
  // to the bit.
  void expect_parts_sum(const Batch& batch, const std::vector<Batch>& parts, double tolerance = 1e-11) {
    const Result whole = differentiate(batch);
    double loss_of_parts = 0;
    std::vector<double> features;
    std::map<std::string, std::vector<double>> gradients;
    for (const Batch& part : parts) {
      const Result p = differentiate(part);
      loss_of_parts += p.loss;
      features.insert(features.end(), p.features.begin(), p.features.end());
      for (const auto& [name, gradient] : p.gradients) {
        std::vector<double>& sum = gradients[name];
        sum.resize(gradient.size());
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
      }
    }
    EXPECT_NEAR(loss_of_parts, whole.loss, 1e-12 * whole.loss);
    EXPECT_EQ(features, whole.features);
    for (const auto& [name, want] : whole.gradients) {
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(gradients.at(name)[i], want[i], tolerance * std::max(1.0, std::abs(want[i])))
            << name << '[' << i << ']';
    }
  }

  Context ctx;
  std::unique_ptr<Model> model;
  std::unique_ptr<Loss> loss;
  ParameterStore params;
};

// Windows of `steps` words, one for each slot. word(slot, t): word t of the text of a slot.
template <class Word>
Batch windows_of(const std::vector<int64_t>& slots, int64_t steps, const Word& word) {
  Batch b;
  const auto n = static_cast<int64_t>(slots.size());
  b.inputs = Tensor::empty(Allocator::cpu(), {n, steps}, DType::i32);
  b.targets = Tensor::empty(Allocator::cpu(), {n, steps}, DType::i32);
  for (int64_t s = 0; s < n; ++s) {
    for (int64_t t = 0; t < steps; ++t) {
      b.inputs.data<int32_t>()[s * steps + t] = word(slots[static_cast<size_t>(s)], t);
      b.targets.data<int32_t>()[s * steps + t] = word(slots[static_cast<size_t>(s)], t + 1);
    }
  }
  b.slots = slots;
  b.fresh.assign(slots.size(), 0);
  return b;
}

// Each document of a batch of windows as a separate batch.
inline std::vector<Batch> documents_alone(const Batch& batch) {
  std::vector<Batch> alone;
  const int32_t *inputs = batch.inputs.data<int32_t>(), *targets = batch.targets.data<int32_t>();
  int64_t begin = 0;
  for (const int64_t length : batch.documents) {
    alone.push_back(windows_of(
        {0}, length, [&](int64_t, int64_t t) { return t < length ? inputs[begin + t] : targets[begin + t - 1]; }));
    begin += length;
  }
  return alone;
}

// Under `documents: separate`, loss, features and gradients of windows are those of their documents alone; if the
// documents are joined, they differ. With dropout, parts of a batch have the same noise as the whole.
inline void expect_documents_apart(ModelOnBatches& net, ModelOnBatches& noisy, int32_t separator,
                                   const Batch& windows) {
  Batch batch = windows;
  separate_documents(batch, separator);
  ASSERT_GT(batch.documents.size(), batch.slots.size());
  net.expect_parts_sum(batch, documents_alone(batch));
  const auto joined = net.differentiate(windows), apart = net.differentiate(batch);
  EXPECT_NE(joined.loss, apart.loss);
  EXPECT_NE(joined.gradients, apart.gradients);
  std::vector<Batch> parts;
  for (const int64_t slot : windows.slots) {
    parts.push_back(windows_of({slot}, windows.inputs.dim(1), [&](int64_t s, int64_t t) {
      const int64_t last = windows.inputs.dim(1) - 1;
      const int64_t row = s * windows.inputs.dim(1);
      return t > last ? windows.targets.data<int32_t>()[row + last] : windows.inputs.data<int32_t>()[row + t];
    }));
    separate_documents(parts.back(), separator);
  }
  noisy.expect_parts_sum(batch, parts);
  // Equal documents of a window have different noise.
  Batch twice = windows_of({0}, 6, [&](int64_t, int64_t t) { return t % 3 == 0 ? separator : separator + 1; });
  separate_documents(twice, separator);
  const std::vector<double> features = noisy.differentiate(twice).features;
  EXPECT_FALSE(std::equal(features.begin(), features.begin() + std::ssize(features) / 2,
                          features.begin() + std::ssize(features) / 2));
}

}  // namespace lmx::testing
