// Dropout in the recurrent language models: masks belong to (step, layer, slot, time, column), so that a global batch
// cut into ranks or micro-batches trains on the same noise as the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lmx/loss.h"
#include "models/made_model.h"
#include "ops/gradcheck.h"

namespace lmx {
namespace {

constexpr int64_t kVocab = 11;

struct Result {
  double loss = 0;
  std::vector<double> features;  // (B*T, D), sequence by sequence
  std::map<std::string, std::vector<double>> gradients;
};

class DropoutSlices : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = testing::made_model(GetParam(), kVocab);
    loss_ = make_loss(parse_yaml("{name: full_softmax, bias: true}", "test"), "loss",
                      {kVocab, model_->feature_size(), nullptr});
  }

  // Forward and backward of these slots in f64, each slot's words and starting state its own.
  Result differentiate(const std::vector<int64_t>& slots, uint64_t step = 1) const {
    Context ctx;
    Tape tape;
    ctx.compute = DType::f64;
    ctx.tape = &tape;
    ctx.key = RandomKey(17).fold("step").fold(step);
    ParameterStore params;
    for (const ParameterSpec& spec : model_->parameters()) params.add(ctx, spec, RandomKey(1));
    for (const ParameterSpec& spec : loss_->parameters()) params.add(ctx, spec, RandomKey(1));
    const Batch batch = batch_of(ctx, slots);
    ModelState state = model_->initial_state(ctx, batch.sequences());
    const Var features = model_->forward(ctx, params, batch, state);
    const Var loss = loss_->forward(ctx, params, features, batch.targets.reshape({batch.tokens()}), {}).loss;
    tape.backward(ctx, loss);
    Result r;
    r.loss = *loss.value().data<double>();
    const std::span<const double> f = features.value().values<double>();
    r.features.assign(f.begin(), f.end());
    for (const std::string& name : params.names()) r.gradients[name] = testing::dense_gradient(params.at(name));
    return r;
  }

  Batch batch_of(const Context& ctx, const std::vector<int64_t>& slots) const {
    const auto sequences = static_cast<int64_t>(slots.size());
    Batch b;
    b.inputs = ctx.empty({sequences, steps_}, DType::i32);
    b.targets = ctx.empty({sequences, steps_}, DType::i32);
    b.slots = slots;
    b.fresh.assign(slots.size(), 1);
    for (int64_t i = 0; i < sequences; ++i) {
      for (int64_t t = 0; t < steps_; ++t) {
        const int64_t slot = slots[static_cast<size_t>(i)];
        b.inputs.data<int32_t>()[i * steps_ + t] = static_cast<int32_t>((3 * slot + 5 * t) % kVocab);
        b.targets.data<int32_t>()[i * steps_ + t] = static_cast<int32_t>((7 * slot + 2 * t + 1) % kVocab);
      }
    }
    return b;
  }

  // The sum over the parts is the whole's, up to the order of additions; features agree in every bit.
  void expect_sum(const Result& whole, const std::vector<Result>& parts) const {
    double loss = 0;
    std::vector<double> features;
    for (const Result& part : parts) {
      loss += part.loss;
      features.insert(features.end(), part.features.begin(), part.features.end());
    }
    EXPECT_NEAR(loss, whole.loss, 1e-12 * whole.loss);
    EXPECT_EQ(features, whole.features);
    for (const auto& [name, want] : whole.gradients) {
      for (size_t i = 0; i < want.size(); ++i) {
        double sum = 0;
        for (const Result& part : parts) sum += part.gradients.at(name)[i];
        ASSERT_NEAR(sum, want[i], 1e-12 * std::max(1.0, std::abs(want[i]))) << name << '[' << i << ']';
      }
    }
  }

  int64_t steps_ = 5;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;
};

TEST_P(DropoutSlices, HalvesSumToTheWhole) {
  const Result whole = differentiate({0, 1, 2, 3});
  expect_sum(whole, {differentiate({0, 1}), differentiate({2, 3})});
  expect_sum(whole, {differentiate({0}), differentiate({1, 2, 3})});
  expect_sum(whole, {differentiate({0}), differentiate({1}), differentiate({2}), differentiate({3})});
}

// Slots 0 and 11 read the same words; only their masks tell them apart.
TEST_P(DropoutSlices, SlotAndStepDecide) {
  EXPECT_EQ(differentiate({0}).features, differentiate({0}).features);
  EXPECT_NE(differentiate({0}).features, differentiate({kVocab}).features);
  EXPECT_NE(differentiate({0}).features, differentiate({0}, 2).features);
}

// The last mask is seen directly: where a feature is zero. It differs from time to time.
TEST_P(DropoutSlices, EachTimeHasAMaskOfItsOwn) {
  const Result r = differentiate({0, 1, 2, 3, 4, 5, 6, 7});
  const auto width = static_cast<size_t>(model_->feature_size());
  std::map<std::vector<bool>, int> masks;
  int zeros = 0;
  for (size_t row = 0; row < static_cast<size_t>(8 * steps_); ++row) {
    std::vector<bool> mask;
    for (size_t j = 0; j < width; ++j) mask.push_back(r.features[row * width + j] != 0);
    zeros += static_cast<int>(std::count(mask.begin(), mask.end(), false));
    ++masks[mask];
  }
  EXPECT_GT(masks.size(), 15u);  // of the 32 that 5 columns can have
  EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(r.features.size()), 0.4, 0.12);
}

// A layer's mask is seen in its input matrix: of one word, a column whose input is zero has no gradient.
TEST_P(DropoutSlices, EachLayerHasAMaskOfItsOwn) {
  steps_ = 1;
  const auto dropped = [&](const Result& r, int64_t layer) {
    std::vector<bool> mask;
    for (const auto& [name, gradient] : r.gradients) {
      if (!name.ends_with(str(".", layer, ".weight_ih")) && !name.ends_with(str(".", layer, ".weight_x"))) continue;
      const auto columns = static_cast<size_t>(layer == 0 ? 6 : model_->feature_size());
      for (size_t j = 0; j < columns; ++j) {
        bool zero = true;
        for (size_t i = j; i < gradient.size(); i += columns) zero = zero && gradient[i] == 0;
        mask.push_back(zero);
      }
    }
    return mask;
  };
  std::vector<bool> first, second;
  int both = 0;
  for (int64_t slot = 0; slot < 60; ++slot) {
    const Result r = differentiate({slot});
    std::vector<bool> below = dropped(r, 0), above = dropped(r, 1);
    ASSERT_LE(above.size(), 6U);
    if (below.empty()) {  // directions of normalised rows have gradients everywhere
      EXPECT_NE(std::string(GetParam()).find("weight_norm"), std::string::npos);
      return;
    }
    for (size_t j = 0; j < above.size(); ++j) both += below[j] == above[j];
    first.insert(first.end(), below.begin(), below.end());
    second.insert(second.end(), above.begin(), above.end());
  }
  for (const std::vector<bool>& mask : {first, second})
    EXPECT_NEAR(static_cast<double>(std::count(mask.begin(), mask.end(), true)) / static_cast<double>(mask.size()), 0.4,
                0.1);
  EXPECT_NEAR(both / static_cast<double>(second.size()), 0.4 * 0.4 + 0.6 * 0.6, 0.12)
      << "masks of two layers are alike";
}

INSTANTIATE_TEST_SUITE_P(
    Models, DropoutSlices,
    ::testing::Values("{name: lstm, layers: 2, embedding: 6, cells: 8, projection: 5, dropout: 0.4}",
                      "{name: mlstm, layers: 2, embedding: 6, cells: 5, dropout: 0.4}",
                      "{name: mlstm, layers: 2, embedding: 6, cells: 5, dropout: 0.4, weight_norm: '.*'}",
                      "{name: rhn, layers: 2, embedding: 6, cells: 5, depth: 3, dropout: 0.4}",
                      "{name: rhn, layers: 2, embedding: 6, cells: 5, depth: 2, coupled: false, dropout: 0.4, "
                      "checkpoint: true, segment: 2}"));

}  // namespace
}  // namespace lmx
