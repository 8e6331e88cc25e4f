// Dropout in the recurrent language models: masks belong to (step, layer, slot, time, column), so that a global batch
// cut into ranks or micro-batches trains on the same noise as the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/model_on_batches.h"

namespace lmx {
namespace {

constexpr int64_t kVocab = 11;

class DropoutSlices : public ::testing::TestWithParam<const char*> {
 protected:
  using Result = testing::ModelOnBatches::Result;

  // Each slot has separate words and a separate starting state.
  Batch batch_of(const std::vector<int64_t>& slots) const {
    Batch batch = testing::windows_of(
        slots, steps_, [](int64_t slot, int64_t t) { return static_cast<int32_t>((3 * slot + 5 * t) % kVocab); });
    batch.fresh.assign(slots.size(), 1);
    return batch;
  }

  // Forward and backward of these slots in f64; features (B*T, D) are sequence by sequence.
  Result differentiate(const std::vector<int64_t>& slots, uint64_t step = 1) {
    net_.ctx.key = RandomKey(17).fold("step").fold(step);
    return net_.differentiate(batch_of(slots));
  }

  // The sum over the parts is the whole's, up to the order of additions; features agree in every bit.
  void expect_sum(const std::vector<int64_t>& whole, const std::vector<std::vector<int64_t>>& parts) {
    std::vector<Batch> batches;
    for (const std::vector<int64_t>& part : parts) batches.push_back(batch_of(part));
    net_.expect_parts_sum(batch_of(whole), batches, 1e-12);
  }

  int64_t steps_ = 5;
  testing::ModelOnBatches net_{testing::made_model(GetParam(), kVocab), kVocab, "{name: full_softmax, bias: true}",
                               DType::f64};
};

TEST_P(DropoutSlices, HalvesSumToTheWhole) {
  expect_sum({0, 1, 2, 3}, {{0, 1}, {2, 3}});
  expect_sum({0, 1, 2, 3}, {{0}, {1, 2, 3}});
  expect_sum({0, 1, 2, 3}, {{0}, {1}, {2}, {3}});
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
  const auto width = static_cast<size_t>(net_.model->feature_size());
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
      const auto columns = static_cast<size_t>(layer == 0 ? 6 : net_.model->feature_size());
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
