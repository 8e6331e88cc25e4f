// The Transformer against PyTorch's own layers: same weights, same batches of sentences of different lengths, which
// PyTorch pads and masks (tools/parity/transformer.py makes the golden files).
#include "models/parity.h"

namespace lmx {
namespace {

using testing::Golden;

class TransformerParity : public testing::Parity {
 protected:
  void SetUp() override {
    Parity::SetUp();
    make(40, "{name: full_softmax, bias: false, label_smoothing: 0.1}");
  }

  // Sentences of step `step` from a flat array, and their lengths.
  Tensor sentences(const char* what, const char* lengths, int64_t step, std::vector<int64_t>& sizes) const {
    const Tensor& all = golden_.at(lengths);
    const int64_t count = all.dim(1);
    int64_t first = 0, n = 0;
    for (int64_t i = 0; i < step * count; ++i) first += all.data<int32_t>()[i];
    sizes.clear();
    for (int64_t b = 0; b < count; ++b) {
      sizes.push_back(all.data<int32_t>()[step * count + b]);
      n += sizes.back();
    }
    return golden_.at(what).slice(first, first + n);
  }

  Batch batch(int64_t step) const override {
    Batch b;
    b.inputs = sentences("inputs", "lengths", step, b.lengths);
    b.targets = sentences("targets", "lengths", step, b.lengths);
    if (model_->translates()) b.source = sentences("source", "source_lengths", step, b.source_lengths);
    for (size_t s = 0; s < b.lengths.size(); ++s) b.slots.push_back(static_cast<int64_t>(s));
    b.fresh.assign(b.slots.size(), 1);
    return b;
  }

  // A key's bias adds the same to all scores of a query: its gradient is zero but for rounding, in both.
  double floor_of(const std::string& name) const override {
    return name.ends_with("qkv.bias") || name.ends_with("kv.bias") ? 1e-2 : 0;
  }
};

TEST_P(TransformerParity, FirstBatch) {
  expect_equal_first_batch();
}

TEST_P(TransformerParity, TwentyTrainingLosses) {
  expect_equal_training(0.5);
}

#define LMX_SIZES "name: transformer, d: 12, heads: 3, ffn: 20, dropout: 0, "
INSTANTIATE_TEST_SUITE_P(
    Golden, TransformerParity,
    ::testing::Values(
        Golden{"transformer_post_all", "{" LMX_SIZES "encoder_layers: 2, decoder_layers: 2}"},
        Golden{"transformer_pre_none", "{" LMX_SIZES "encoder_layers: 1, decoder_layers: 2, norm: pre, share: none}"},
        Golden{"transformer_post_decoder", "{" LMX_SIZES "encoder_layers: 2, decoder_layers: 1, share: decoder}"},
        Golden{"transformer_language_model", "{" LMX_SIZES "encoder_layers: 0, decoder_layers: 2}"}));
#undef LMX_SIZES

}  // namespace
}  // namespace lmx
