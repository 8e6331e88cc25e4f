// The model `gpt`: gradients in f64, sequences that do not depend on each other, sizes of known models, initial values
// and errors.
#include "lmx/error.h"
#include "models/model_on_batches.h"
#include "test.h"

namespace lmx::gpt {
namespace {

using namespace lmx_test;
using testing::windows_of;

constexpr int64_t kWords = 13;
const char* const kGpt2 =
    "layers: 2, d: 8, heads: 2, context: 9, positions: learned, norm: layer, norm_eps: 1e-5, activation: gelu_tanh, "
    "bias: true";
const char* const kLlama =
    "layers: 2, d: 8, heads: 4, kv_heads: 1, ffn: 10, tie: false, rope_base: 50, rope_scaling: {factor: 4, original: "
    "20}";
const char* const kQwen3 =
    "layers: 2, d: 8, heads: 4, kv_heads: 2, head_size: 6, ffn: 10, qk_norm: true, qkv_bias: true";

std::unique_ptr<Model> model_of(const std::string& fields, int64_t vocab = kWords) {
  return testing::made_model("{name: gpt, " + fields + "}", vocab);
}

class Network : public testing::ModelOnBatches {
 public:
  explicit Network(const std::string& fields)
      : ModelOnBatches(model_of(fields), kWords, "{name: full_softmax, bias: false}", DType::f64) {
    // Larger matrices than those of the start, so that no gradient is too small to compare.
    for (const std::string& name : params.names()) {
      Var& v = params.at(name);
      for (int64_t i = 0; v.value().rank() == 2 && i < v.value().numel(); ++i) v.value().data<double>()[i] *= 15;
      v.changed();
    }
  }
};

int32_t word(int64_t slot, int64_t t) {
  return static_cast<int32_t>(RandomKey(5).below(static_cast<uint64_t>(100 * slot + t), kWords));
}

// Sequences of different lengths, packed.
Batch packed_batch(const std::vector<int64_t>& slots) {
  Batch b;
  std::vector<int32_t> inputs, targets;
  for (const int64_t slot : slots) {
    b.lengths.push_back(1 + (3 * slot + 3) % 5);
    for (int64_t t = 0; t < b.lengths.back(); ++t) {
      inputs.push_back(word(slot, t));
      targets.push_back(word(slot, t + 1));
    }
  }
  b.inputs = testing::ids_tensor(inputs);
  b.targets = testing::ids_tensor(targets);
  b.slots = slots;
  b.fresh.assign(slots.size(), 1);
  return b;
}

TEST(Gpt, GradientsAreTrue) {
  for (const char* fields : {kGpt2, kLlama, kQwen3}) {
    SCOPED_TRACE(fields);
    Network(str(fields, ", dropout: 0.2")).expect_true_gradients(windows_of({0, 3}, 5, word));
    Network(fields).expect_true_gradients(packed_batch({0, 1, 2}));
  }
}

// Dropout included: the contribution of a sequence does not depend on its neighbours.
TEST(Gpt, PartsSumToTheWhole) {
  for (const char* fields : {kGpt2, kLlama, kQwen3}) {
    SCOPED_TRACE(fields);
    Network net(str(fields, ", dropout: 0.3"));
    net.expect_parts_sum(packed_batch({0, 1, 2, 3}), {packed_batch({0}), packed_batch({1, 2}), packed_batch({3})});
    net.expect_parts_sum(windows_of({0, 1, 2}, 6, word), {windows_of({0}, 6, word), windows_of({1, 2}, 6, word)});
  }
}

TEST(Gpt, DocumentsOfAWindowAreThoseDocumentsAlone) {
  for (const char* fields : {kGpt2, kLlama, kQwen3}) {
    for (const char* more : {"", ", checkpoint: true"}) {
      SCOPED_TRACE(str(fields, more));
      Network net(str(fields, more)), noisy(str(fields, more, ", dropout: 0.3"));
      const Batch batch = windows_of({0, 1, 2}, 9, word);
      testing::expect_documents_apart(net, noisy, batch.inputs.data<int32_t>()[4], batch);
    }
  }
}

// Bits are equal, because the same ops run in the same order.
TEST(Gpt, CheckpointedLayersHaveTheSameGradients) {
  for (const char* fields : {kGpt2, kLlama, kQwen3}) {
    const Batch batch = packed_batch({0, 1, 2});
    const Network::Result kept = Network(str(fields, ", dropout: 0.3")).differentiate(batch);
    const Network::Result again = Network(str(fields, ", dropout: 0.3, checkpoint: true")).differentiate(batch);
    EXPECT_EQ(again.loss, kept.loss);
    EXPECT_EQ(again.features, kept.features);
    EXPECT_EQ(again.gradients, kept.gradients) << fields;
  }
}

TEST(Gpt, CheckpointedLayersTakeLessMemory) {
  const auto peak = [](bool checkpoint) {
    Network net(str("layers: 4, d: 8, heads: 2, ffn: 32, checkpoint: ", checkpoint ? "true" : "false"));
    net.ctx.allocator = Allocator::counting(Allocator::cpu());
    net.differentiate(windows_of({0, 1}, 20, word));
    return net.ctx.allocator->stats().peak[static_cast<size_t>(MemClass::activations)];
  };
  EXPECT_LT(2 * peak(true), peak(false));
}

TEST(Gpt, NoWordSeesTheFuture) {
  for (const char* fields : {kGpt2, kLlama, kQwen3}) {
    Network net(fields);
    Batch batch = windows_of({0}, 6, word);
    const std::vector<double> before = net.differentiate(batch).features;
    batch.inputs.data<int32_t>()[4] = (batch.inputs.data<int32_t>()[4] + 1) % kWords;
    const std::vector<double> after = net.differentiate(batch).features;
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] == after[i], i / 8 < 4) << fields << ' ' << i;
  }
}

TEST(Gpt, NoSequencesAreNoRows) {
  for (const char* fields : {kGpt2, kLlama, kQwen3}) {
    Network net(fields);
    EXPECT_EQ(net.differentiate(packed_batch({})).features.size(), 0U) << fields;
  }
}

int64_t count(const std::vector<ParameterSpec>& specs) {
  int64_t n = 0;
  for (const ParameterSpec& s : specs) n += s.shape.numel();
  return n;
}

// The numbers that transformers counts for openai-community/gpt2, meta-llama/Llama-3.2-1B and Qwen/Qwen3-0.6B.
TEST(Gpt, KnownModelsHaveTheirParameters) {
  const char* const gpt2 =
      "layers: 12, d: 768, heads: 12, positions: learned, norm: layer, activation: gelu_tanh, bias: true";
  EXPECT_EQ(count(model_of(gpt2, 50'257)->parameters()), 124'439'808);
  EXPECT_EQ(count(model_of("layers: 16, d: 2048, heads: 32, kv_heads: 8, ffn: 8192", 128'256)->parameters()),
            1'235'814'400);
  const char* const qwen3 = "layers: 28, d: 1024, heads: 16, kv_heads: 8, head_size: 128, ffn: 3072, qk_norm: true";
  EXPECT_EQ(count(model_of(qwen3, 151'936)->parameters()), 596'049'920);
  EXPECT_EQ(model_of(qwen3)->output_table(), "embedding.weight");
  EXPECT_EQ(model_of(str(qwen3, ", tie: false"))->output_table(), "");
}

TEST(Gpt, DefaultUnitsOfFeedForward) {
  const auto units = [](const std::string& fields) {
    for (const ParameterSpec& s : model_of(fields)->parameters())
      if (s.name == "layer.0.ffn.out.weight") return s.shape[1];
    return int64_t{0};
  };
  EXPECT_EQ(units("d: 384"), 1024);
  EXPECT_EQ(units("d: 390, heads: 3"), 1088);  // 1,040 is no multiple of 64
  EXPECT_EQ(units("d: 384, activation: gelu_tanh"), 4 * 384);
  EXPECT_EQ(units("d: 384, ffn: 7"), 7);
}

TEST(Gpt, InitialValuesAreGpt2s) {
  Context ctx;
  ParameterStore params;
  for (const ParameterSpec& s : model_of("layers: 8, d: 64, heads: 4, bias: true, norm: layer", 500)->parameters())
    params.add(ctx, s, RandomKey(3));
  const auto deviation = [&](const std::string& name) {
    double squares = 0;
    const Tensor& t = params.at(name).value();
    for (const float x : t.values<float>()) squares += static_cast<double>(x) * static_cast<double>(x);
    return std::sqrt(squares / static_cast<double>(t.numel()));
  };
  for (const char* name : {"embedding.weight", "layer.3.attention.qkv.weight", "layer.0.ffn.in.weight"})
    EXPECT_NEAR(deviation(name), 0.02, 0.001) << name;
  for (const char* name : {"layer.3.attention.out.weight", "layer.0.ffn.out.weight"})
    EXPECT_NEAR(deviation(name), 0.02 / 4, 0.0003) << name;  // sqrt(2 * 8)
  for (const char* name : {"layer.3.attention.qkv.bias", "layer.0.ffn.out.bias", "norm.bias"})
    EXPECT_EQ(deviation(name), 0) << name;
  EXPECT_EQ(deviation("layer.7.ffn_norm.gain"), 1);
}

TEST(Gpt, Errors) {
  const auto problem = [](const char* fields) { return lmx_test::user_error([&] { model_of(fields); }); };
  EXPECT_THAT(problem("d: 10, heads: 4"), Names("model", "d 10", "heads 4", "head_size"));
  EXPECT_THAT(problem("d: 12, heads: 4, kv_heads: 3"), Names("kv_heads 3", "heads 4"));
  EXPECT_THAT(problem("d: 12, heads: 4"), Names("size 3", "even"));
  EXPECT_EQ(problem("d: 12, heads: 4, positions: learned"), "no error");
  EXPECT_EQ(problem("d: 10, heads: 4, head_size: 2"), "no error");
  EXPECT_THAT(problem("rope_scaling: {low: 4}"), Names("rope_scaling.high 4", "low 4"));
  EXPECT_THAT(problem("positions: sinusoids"), Names("learned"));
}

TEST(Gpt, LearnedPositionsLimitTheLength) {
  Network net(kGpt2);
  net.loss_of(windows_of({0}, 9, word));
  EXPECT_THAT(lmx_test::user_error([&] { net.loss_of(windows_of({0}, 10, word)); }),
              Names("[gpt]", "10 tokens", "model.context is 9"));
  const auto text = start_text(*net.model, net.ctx, net.params, 1);
  for (int t = 0; t < 9; ++t) text->step(net.ctx, std::vector<int32_t>{1});
  EXPECT_THAT(lmx_test::user_error([&] { text->step(net.ctx, std::vector<int32_t>{1}); }),
              Names("10 tokens", "model.context is 9"));
  Network rotary(kLlama);
  EXPECT_GT(rotary.loss_of(windows_of({0}, 1030, word)), 0);
}

}  // namespace
}  // namespace lmx::gpt
