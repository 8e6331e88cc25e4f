// The recurrent language models against PyTorch: same weights, same batches, state carried from one to the next
// (tools/parity/lstm.py and recurrent.py make the golden files).
#include "models/parity.h"

namespace lmx {
namespace {

using testing::Golden;

class RecurrentParity : public testing::Parity {
 protected:
  void SetUp() override {
    Parity::SetUp();
    make(golden_.at("param.embedding.weight").dim(0), "{name: full_softmax, bias: true}");
    state_ = model_->initial_state(ctx_, golden_.at("inputs").dim(1));
  }

  Batch batch(int64_t step) const override {
    const Tensor& inputs = golden_.at("inputs");
    Batch b;
    b.inputs = inputs.slice(step, step + 1).reshape({inputs.dim(1), inputs.dim(2)});
    b.targets = golden_.at("targets").slice(step, step + 1).reshape({inputs.dim(1), inputs.dim(2)});
    for (int64_t s = 0; s < inputs.dim(1); ++s) b.slots.push_back(s);
    b.fresh.assign(b.slots.size(), step == 0);
    return b;
  }
};

TEST_P(RecurrentParity, FirstBatch) {
  expect_equal_first_batch();
  size_t states = 0;
  for (const auto& [name, want] : golden_) {
    if (!name.starts_with("state.")) continue;
    expect_close(name, lmx_test::values_of(ctx_, state_.at(name.substr(6))), want);
    ++states;
  }
  EXPECT_EQ(states, state_.size());
}

TEST_P(RecurrentParity, TwentyTrainingLosses) {
  expect_equal_training(1.0);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, RecurrentParity,
    ::testing::Values(
        Golden{"lstm_plain", "{name: lstm, embedding: 7, cells: 12}"},
        Golden{"lstm_projection", "{name: lstm, embedding: 7, cells: 12, projection: 6}"},
        Golden{"lstm_two_layers", "{name: lstm, layers: 2, embedding: 7, cells: 12, projection: 6}"},
        Golden{"mlstm_plain", "{name: mlstm, layers: 2, embedding: 7, cells: 12}"},
        Golden{"mlstm_weight_norm", "{name: mlstm, layers: 2, embedding: 7, cells: 12, weight_norm: 'mlstm\\..*'}"},
        Golden{"rhn_coupled", "{name: rhn, layers: 2, embedding: 7, cells: 12, depth: 3, transform_bias: 0}"},
        Golden{"rhn_free",
               "{name: rhn, layers: 2, embedding: 7, cells: 12, depth: 3, coupled: false, transform_bias: 0}"},
        Golden{"rhn_weight_norm",
               "{name: rhn, layers: 2, embedding: 7, cells: 12, depth: 3, coupled: false, weight_norm: 'rhn\\..*'}"}),
    [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace lmx
