// The Transformer against PyTorch's own layers: same weights, same batches of sentences of different lengths, which
// PyTorch pads and masks (tools/parity/transformer.py makes the golden files).
#include <gtest/gtest.h>

#include <cmath>

#include "lmx/checkpoint.h"
#include "lmx/error.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/optim.h"
#include "lmx/plugin.h"
#include "ops/gradcheck.h"

namespace lmx {
namespace {

struct Golden {
  const char* name;
  const char* model;
};

void PrintTo(const Golden& g, std::ostream* out) {
  *out << g.name;
}

class TransformerParity : public ::testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    golden_ =
        load_safetensors(str(LMX_SOURCE_DIR, "/tests/models/golden/", GetParam().name, ".safetensors"), ctx_.allocator);
    const Node config = parse_yaml(GetParam().model, "test");
    Registry::instance().add_default_directories();
    model_ = create<ModelFactory>(Registry::instance().find(PluginKind::model, config, "model"), config, "model",
                                  ModelEnv{kVocab});
    loss_ = make_loss(parse_yaml("{name: full_softmax, bias: false, label_smoothing: 0.1}", "test"), "loss",
                      {kVocab, model_->feature_size(), nullptr, model_->parameters(), model_->output_table()});
    for (const ParameterSpec& spec : all_parameters(model_->parameters(), *loss_)) {
      Var& v = params_.add(ctx_, spec, RandomKey(1));
      v.value().copy_from(golden_.at("param." + spec.name));
      v.changed();
    }
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

  Batch batch(int64_t step) const {
    Batch b;
    b.inputs = sentences("inputs", "lengths", step, b.lengths);
    b.targets = sentences("targets", "lengths", step, b.lengths);
    if (model_->translates()) b.source = sentences("source", "source_lengths", step, b.source_lengths);
    for (size_t s = 0; s < b.lengths.size(); ++s) b.slots.push_back(static_cast<int64_t>(s));
    b.fresh.assign(b.slots.size(), 1);
    return b;
  }

  // Forward and backward of one batch; returns the mean loss.
  double differentiate(int64_t step) {
    Tape tape;
    ctx_.tape = &tape;
    const Batch b = batch(step);
    ModelState state;
    features_ = model_->forward(ctx_, params_, b, state);
    const Var loss = loss_->forward(ctx_, params_, features_, b.targets, {}).loss;
    const double tokens = static_cast<double>(b.tokens());
    const double mean = *loss.value().data<float>() / tokens;
    tape.backward(ctx_, loss, 1 / tokens);
    ctx_.tape = nullptr;
    return mean;
  }

  // Largest difference over the largest value: 1e-5 is a hundred units in the last place of fp32.
  void expect_close(const std::string& what, const std::vector<double>& got, const Tensor& want, double floor = 0) {
    ASSERT_EQ(static_cast<int64_t>(got.size()), want.numel()) << what;
    double largest = floor, error = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(want.data<float>()[i])));
      error = std::max(error, std::abs(got[i] - static_cast<double>(want.data<float>()[i])));
    }
    EXPECT_LE(error, 1e-5 * largest) << what;
  }

  static constexpr int64_t kVocab = 40;
  Context ctx_;
  StateDict golden_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;
  ParameterStore params_;
  Var features_;
};

TEST_P(TransformerParity, FirstBatch) {
  const double loss = differentiate(0);
  EXPECT_NEAR(loss, *golden_.at("losses").data<float>(), 1e-5 * loss);
  const Tensor logits = loss_->logits(ctx_, params_, features_.value());
  expect_close("logits", {logits.values<float>().begin(), logits.values<float>().end()}, golden_.at("logits"));
  size_t gradients = 0;
  for (const auto& [name, value] : golden_) gradients += name.starts_with("grad.");
  EXPECT_EQ(gradients, params_.names().size());
  for (const std::string& name : params_.names()) {
    // A key's bias adds the same to all scores of a query: its gradient is zero but for rounding, in both.
    const double floor = name.ends_with("qkv.bias") || name.ends_with("kv.bias") ? 1e-2 : 0;
    expect_close(name, testing::dense_gradient(params_.at(name)), golden_.at("grad." + name), floor);
  }
}

TEST_P(TransformerParity, TwentyTrainingLosses) {
  const std::unique_ptr<Optimizer> sgd = make_optimizer(parse_yaml("{name: sgd, lr: 0.5}", "test"), "optimizer");
  const Tensor& losses = golden_.at("losses");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss = differentiate(step), want = losses.data<float>()[step];
    EXPECT_NEAR(loss, want, 1e-5 * want) << "step " << step;
    for (const std::string& name : params_.names()) params_.at(name).grad().coalesce(ctx_);
    clip_gradients(ctx_, params_, {{".*", 0.5}});
    for (const std::string& name : params_.names()) sgd->update(ctx_, params_.at(name), 0.5, step + 1);
    params_.clear_gradients();
  }
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
