// A model against PyTorch: same weights, same batches. Scripts in tools/dev/parity make the golden files. The model
// computes on the device that LMX_TEST_DEVICE names.
#include <algorithm>
#include <cmath>

#include "device.h"
#include "lmx/error.h"
#include "lmx/loss.h"
#include "lmx/optim.h"
#include "models/made_model.h"
#include "ops/gradcheck.h"
#include "runfiles/checkpoint.h"
#include "test.h"

namespace lmx::testing {

struct Golden {
  const char* name;   // of the case: its tensors are NAME/... in the golden file
  const char* model;  // its config
};

inline void PrintTo(const Golden& g, std::ostream* out) {
  *out << g.name;
}

class Parity : public ::testing::TestWithParam<Golden> {
 protected:
  // Reads the tensors of the case from tests/models/golden/FILE.safetensors.
  void read_golden(const std::string& file) {
    ctx_ = lmx_test::test_context();
    const std::string folder = lmx_test::source_path("/tests/models/golden/"), prefix = str(GetParam().name, '/');
    for (const auto& [name, tensor] : load_safetensors(str(folder, file, ".safetensors"), ctx_.host))
      if (name.starts_with(prefix)) golden_[name.substr(prefix.size())] = tensor;
  }

  // Makes the model and a full softmax, with the golden file's weights.
  void make(int64_t vocab, const char* loss) {
    model_ = testing::made_model(GetParam().model, vocab);
    const LossEnv env{vocab, model_->feature_size(), nullptr, model_->parameters(), model_->output_table()};
    loss_ = make_loss(parse_yaml(loss, "test"), "loss", env);
    for (const ParameterSpec& spec : all_parameters(model_->parameters(), *loss_)) {
      Var& v = params_.add(ctx_, spec, RandomKey(1));
      copy_values(v.value(), golden_.at("param." + spec.name));
      v.changed();
    }
  }

  virtual Batch batch(int64_t step) const = 0;

  // Forward and backward of one batch; returns the mean loss.
  double differentiate(int64_t step) {
    Tape tape;
    ctx_.tape = &tape;
    const Batch b = batch(step);
    features_ = model_->forward(ctx_, params_, b, state_);
    const Var loss = loss_->forward(ctx_, params_, features_, b.targets.reshape({-1}), {}).loss;
    const double tokens = static_cast<double>(b.tokens());
    const double mean = static_cast<double>(ctx_.read<float>(loss.value()).value()) / tokens;
    tape.backward(ctx_, loss, 1 / tokens);
    ctx_.tape = nullptr;
    return mean;
  }

  // Largest difference over the largest value, or `floor`: 1e-5 is a hundred units in the last place of fp32.
  void expect_close(const std::string& what, const std::vector<double>& got, const Tensor& want, double floor = 0) {
    ASSERT_EQ(static_cast<int64_t>(got.size()), want.numel()) << what;
    double largest = floor, error = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(want.data<float>()[i])));
      error = std::max(error, std::abs(got[i] - static_cast<double>(want.data<float>()[i])));
    }
    EXPECT_LE(error, 1e-5 * largest) << what;
  }

  // What a gradient is compared with where its largest value is smaller.
  virtual double floor_of(const std::string&) const { return 0; }

  void expect_equal_first_batch() {
    const double loss = differentiate(0);
    EXPECT_NEAR(loss, *golden_.at("losses").data<float>(), 1e-5 * loss);
    expect_close("logits", lmx_test::values_of(ctx_, loss_->logits(ctx_, params_, features_.value())),
                 golden_.at("logits"));
    size_t gradients = 0;
    for (const auto& [name, value] : golden_) gradients += name.starts_with("grad.");
    EXPECT_EQ(gradients, params_.names().size());
    for (const std::string& name : params_.names())
      expect_close(name, dense_gradient(params_.at(name)), golden_.at("grad." + name), floor_of(name));
  }

  void expect_equal_training(double lr, const std::string& fields = "name: sgd") {
    const std::unique_ptr<Optimizer> optimizer =
        make_optimizer(parse_yaml(str("{", fields, ", lr: ", lr, "}"), "test"), "optimizer");
    const Tensor& losses = golden_.at("losses");
    for (int64_t step = 0; step < losses.numel(); ++step) {
      const double loss = differentiate(step), want = losses.data<float>()[step];
      EXPECT_NEAR(loss, want, 1e-5 * want) << "step " << step;
      for (const std::string& name : params_.names()) params_.at(name).grad().coalesce(ctx_);
      const ClipResult measured = measure_gradients(ctx_, params_, {{ParamPattern(".*"), 0.5}});
      for (const std::string& name : params_.names())
        optimizer->update(ctx_, params_.at(name), lr, step + 1, measured.factor(name));
      params_.clear_gradients();
    }
  }

  Context ctx_;
  StateDict golden_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;
  ParameterStore params_;
  ModelState state_;
  Var features_;
};

}  // namespace lmx::testing

// The recurrent language models against PyTorch: same weights, same batches, state carried from one to the next
// (tools/dev/parity/recurrent.py makes the golden files).

namespace lmx {
namespace {

using testing::Golden;

class RecurrentParity : public testing::Parity {
 protected:
  void SetUp() override {
    read_golden("recurrent");
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

// GPT-2, Llama, Qwen2 and Qwen3 of Hugging Face's transformers (tools/dev/parity/gpt.py makes the golden files).

class GptParity : public RecurrentParity {
 protected:
  void SetUp() override {
    read_golden("gpt");
    make(golden_.at("param.embedding.weight").dim(0), "{name: full_softmax, bias: false}");
  }
  // As for the Transformer below.
  double floor_of(const std::string& name) const override { return name.ends_with("qkv.bias") ? 1e-2 : 0; }
};

TEST_P(GptParity, FirstBatch) {
  expect_equal_first_batch();
}

TEST_P(GptParity, TwentyTrainingLosses) {
  expect_equal_training(0.01, "name: adamw, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1");
}

#define LMX_SIZES "name: gpt, layers: 2, d: 12, norm_eps: 1e-5, "
#define LMX_LLAMA LMX_SIZES "ffn: 20, rope_base: 100, "
INSTANTIATE_TEST_SUITE_P(
    Golden, GptParity,
    ::testing::Values(
        Golden{"gpt_gpt2", "{" LMX_SIZES
                           "heads: 3, context: 8, positions: learned, norm: layer, activation: gelu_tanh, bias: true}"},
        Golden{"gpt_llama_tied", "{" LMX_LLAMA "heads: 3, kv_heads: 1}"},
        Golden{"gpt_llama_scaled",
               "{" LMX_LLAMA "heads: 2, kv_heads: 2, tie: false, rope_scaling: {factor: 4, original: 32}}"},
        Golden{"gpt_qwen2", "{" LMX_LLAMA "heads: 3, qkv_bias: true, tie: false}"},
        Golden{"gpt_qwen3", "{" LMX_LLAMA "heads: 4, kv_heads: 2, head_size: 6, qk_norm: true}"}),
    [](const auto& p) { return std::string(p.param.name); });
#undef LMX_LLAMA
#undef LMX_SIZES

// The Transformer against PyTorch's own layers: same weights, same batches of sentences of different lengths, which
// PyTorch pads and masks (tools/dev/parity/transformer.py makes the golden files).

using testing::Golden;

class TransformerParity : public testing::Parity {
 protected:
  void SetUp() override {
    read_golden("transformer");
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
