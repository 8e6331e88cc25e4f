// The LSTM language model against PyTorch: same weights, same batches (tools/parity/lstm.py makes the golden files).
#include "models/parity.h"

namespace lmx {
namespace {

using testing::Golden;

class LstmParity : public testing::Parity {
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

TEST_P(LstmParity, FirstBatch) {
  expect_equal_first_batch();
  const Tensor& h = golden_.at("state_h");
  for (int64_t l = 0; l < h.dim(0); ++l) {
    expect_close("h", doubles(state_.at(str("lstm.", l, ".h"))), h.slice(l, l + 1));
    expect_close("c", doubles(state_.at(str("lstm.", l, ".c"))), golden_.at("state_c").slice(l, l + 1));
  }
}

TEST_P(LstmParity, TwentyTrainingLosses) {
  expect_equal_training(1.0);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, LstmParity,
    ::testing::Values(Golden{"lstm_plain", "{name: lstm, embedding: 7, cells: 12}"},
                      Golden{"lstm_projection", "{name: lstm, embedding: 7, cells: 12, projection: 6}"},
                      Golden{"lstm_two_layers", "{name: lstm, layers: 2, embedding: 7, cells: 12, projection: 6}"}));

}  // namespace
}  // namespace lmx
