// The Transformer as a model: gradients in f64, noise and values that do not depend on how sentences are cut into
// batches, incremental decoding, sizes, and a language model of its decoder.
#include <map>

#include "lmx/error.h"
#include "models/model_on_batches.h"
#include "test.h"

namespace lmx {
namespace {

using namespace lmx_test;

constexpr int64_t kWords = 13;

std::unique_ptr<Model> model_of(const std::string& fields, int64_t vocab = kWords) {
  return testing::made_model("{name: transformer, " + fields + "}", vocab);
}

const char* const kSmall = "encoder_layers: 2, decoder_layers: 2, d: 8, heads: 2, ffn: 10";

// Word t of sentence s.
int32_t word(int64_t s, int64_t t, int64_t salt) {
  return static_cast<int32_t>(RandomKey(static_cast<uint64_t>(salt)).below(static_cast<uint64_t>(100 * s + t), kWords));
}

int64_t source_length(int64_t s) {
  return 1 + (3 * s) % 7;
}
int64_t target_length(int64_t s) {
  return 1 + (5 * s + 2) % 6;
}

Tensor words_of(const std::vector<int64_t>& sentences, int64_t (*length)(int64_t), int64_t salt,
                std::vector<int64_t>* lengths) {
  std::vector<int32_t> ids;
  for (const int64_t s : sentences) {
    for (int64_t t = 0; t < length(s); ++t) ids.push_back(word(s, t, salt));
    if (lengths) lengths->push_back(length(s));
  }
  return testing::ids_tensor(ids);
}

Batch batch_of(const std::vector<int64_t>& sentences) {
  Batch b;
  b.source = words_of(sentences, source_length, 1, &b.source_lengths);
  b.inputs = words_of(sentences, target_length, 2, &b.lengths);
  b.targets = words_of(sentences, target_length, 3, nullptr);
  b.slots = sentences;
  b.fresh.assign(sentences.size(), 1);
  return b;
}

class Network : public testing::ModelOnBatches {
 public:
  explicit Network(const std::string& fields, DType type = DType::f64)
      : ModelOnBatches(model_of(fields), kWords, "{name: full_softmax, bias: false, label_smoothing: 0.1}", type) {}
};

void expect_true_gradients(const std::string& fields, const Batch& batch) {
  SCOPED_TRACE(fields);
  Network net(fields);
  net.expect_true_gradients(batch);
}

TEST(Transformer, GradientsAreTrue) {
  const std::string noisy = ", dropout: 0.2, attention_dropout: 0.1, relu_dropout: 0.1";
  const Batch batch = batch_of({0, 1, 2, 3});
  expect_true_gradients(kSmall + noisy, batch);
  expect_true_gradients(kSmall + noisy + ", norm: pre, share: none", batch);
  expect_true_gradients(kSmall + noisy + ", share: decoder", batch);
}

// Dropout included: what a sentence contributes does not depend on its neighbours.
TEST(Transformer, PartsSumToTheWhole) {
  for (const char* norm : {"post", "pre"}) {
    Network net(str(kSmall, ", dropout: 0.3, attention_dropout: 0.2, relu_dropout: 0.2, norm: ", norm));
    net.expect_parts_sum(batch_of({0, 1, 2, 3, 4}), {batch_of({0, 1}), batch_of({2}), batch_of({3, 4})});
  }
}

TEST(Transformer, NoSentencesAreNoRows) {
  Network net(kSmall);
  Batch none;
  none.inputs = testing::ids_tensor({});
  none.targets = none.inputs;
  EXPECT_EQ(net.loss_of(none), 0);
  EXPECT_EQ(net.differentiate(none).features.size(), 0u);
}

TEST(Transformer, StepsDrawNoiseOfTheirOwn) {
  Network net(str(kSmall, ", dropout: 0.3"));
  const Batch batch = batch_of({0, 1});
  const std::vector<double> first = net.differentiate(batch).features;
  EXPECT_EQ(net.differentiate(batch).features, first);
  net.ctx.key = RandomKey(18);
  EXPECT_NE(net.differentiate(batch).features, first);
  net.ctx.training = false;
  const std::vector<double> quiet = net.differentiate(batch).features;
  net.ctx.key = RandomKey(17);
  EXPECT_EQ(net.differentiate(batch).features, quiet);
}

// ---- decoding

std::vector<double> doubles(const Tensor& t) {
  const Tensor wide = t.to(DType::f64);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double limit) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], limit) << i;
}

// Word by word, each sentence fed its own words: the features of a forward over the whole.
void expect_decoding_follows(const std::string& fields, DType type, double limit) {
  Network net(fields, type);
  net.ctx.training = false;
  std::vector<int64_t> sentences{0, 1, 2, 3, 4};
  const Batch whole = batch_of(sentences);
  ModelState state;
  const std::vector<double> want = doubles(net.model->forward(net.ctx, net.params, whole, state).value());
  net.ctx.training = true;  // a decoding drops nothing all the same
  const auto decoding = net.model->decode(net.ctx, net.params, whole.source, whole.source_lengths);
  const Segments at = Segments::of(whole.lengths);
  for (int64_t t = 0; !sentences.empty(); ++t) {
    std::vector<int32_t> ids;
    for (const int64_t s : sentences) ids.push_back(word(s, t, 2));
    const Tensor features = decoding->step(net.ctx, ids);
    ASSERT_EQ(features.shape(), (Shape{static_cast<int64_t>(sentences.size()), 8}));
    const std::vector<double> got = doubles(features);
    std::vector<int64_t> left, from;
    for (size_t r = 0; r < sentences.size(); ++r) {
      const int64_t s = sentences[r], row = at.begin[static_cast<size_t>(s)] + t;
      expect_near({got.begin() + static_cast<int64_t>(r) * 8, got.begin() + static_cast<int64_t>(r + 1) * 8},
                  {want.begin() + row * 8, want.begin() + (row + 1) * 8}, limit);
      if (t + 1 < target_length(s)) {
        left.push_back(s);
        from.push_back(static_cast<int64_t>(r));
      }
    }
    decoding->select(net.ctx, from);  // finished sentences vanish
    sentences = left;
  }
}

TEST(TransformerDecoding, EqualsTheForwardToRounding) {
  expect_decoding_follows(kSmall, DType::f64, 1e-12);
  expect_decoding_follows(str(kSmall, ", norm: pre, share: none"), DType::f64, 1e-12);
  expect_decoding_follows(kSmall, DType::f32, 1e-5);
  expect_decoding_follows(str(kSmall, ", dropout: 0.5"), DType::f32, 1e-5);
}

// Rows that double, swap and vanish go on from what their ancestors wrote.
TEST(TransformerDecoding, RowsFollowTheirAncestors) {
  Network net(kSmall);
  const Batch batch = batch_of({2, 5});
  const auto decoding = net.model->decode(net.ctx, net.params, batch.source, batch.source_lengths);
  // Each row's words so far, and its sentence.
  std::vector<std::vector<int32_t>> words(2);
  std::vector<size_t> sentence{0, 1};
  const std::vector<std::vector<int64_t>> choices{{0, 0, 0, 1, 1}, {2, 0, 0, 4, 3}, {1, 2, 4}, {0, 2, 2}, {2, 1}};
  RandomKey key(4);
  uint64_t draws = 0;
  for (const std::vector<int64_t>& from : choices) {
    std::vector<int32_t> ids;
    for (auto& w : words) {
      w.push_back(static_cast<int32_t>(key.below(draws++, kWords)));
      ids.push_back(w.back());
    }
    const std::vector<double> got = doubles(decoding->step(net.ctx, ids));
    for (size_t r = 0; r < words.size(); ++r) {
      Batch own;
      const Segments at = Segments::of(batch.source_lengths);
      own.source = batch.source.slice(at.begin[sentence[r]], at.begin[sentence[r] + 1]);
      own.source_lengths = {batch.source_lengths[sentence[r]]};
      own.inputs = testing::ids_tensor(words[r]);
      own.lengths = {static_cast<int64_t>(words[r].size())};
      own.slots = {0};
      ModelState state;
      Context quiet = net.ctx;
      quiet.training = false;
      const std::vector<double> all = doubles(net.model->forward(quiet, net.params, own, state).value());
      expect_near({got.begin() + static_cast<int64_t>(r) * 8, got.begin() + static_cast<int64_t>(r + 1) * 8},
                  {all.end() - 8, all.end()}, 1e-12);
    }
    decoding->select(net.ctx, from);
    std::vector<std::vector<int32_t>> next;
    std::vector<size_t> of;
    for (const int64_t r : from) {
      next.push_back(words[static_cast<size_t>(r)]);
      of.push_back(sentence[static_cast<size_t>(r)]);
    }
    words = next;
    sentence = of;
  }
}

// ---- sizes and messages

int64_t count(const std::vector<ParameterSpec>& specs) {
  int64_t n = 0;
  for (const ParameterSpec& s : specs) n += s.shape.numel();
  return n;
}

// Ott 2018, section 3.2: 210 M for 32,768 joint subwords and 222 M for 44,512.
TEST(Transformer, BigModelHasTheStatedParameters) {
  const char* const big = "d: 1024, ffn: 4096, heads: 16";
  EXPECT_EQ(count(model_of(big, 32'768)->parameters()), 176'357'376 + 1024 * 32'768);  // 209.9 M
  EXPECT_EQ(count(model_of(big, 44'512)->parameters()), 176'357'376 + 1024 * 44'512);  // 221.9 M
  EXPECT_EQ(model_of(big)->output_table(), "embedding.weight");
  EXPECT_EQ(count(model_of(str(big, ", share: decoder"), 1000)->parameters()), 176'357'376 + 2 * 1024 * 1000);
  EXPECT_EQ(model_of(str(big, ", share: decoder"))->output_table(), "decoder.embedding.weight");
  EXPECT_EQ(model_of(str(big, ", share: none"))->output_table(), "");
}

TEST(Transformer, MultiplyAddsOfAPair) {
  const auto model = model_of("encoder_layers: 1, decoder_layers: 1, d: 4, heads: 2, ffn: 6");
  const int64_t ffn = 2 * 4 * 6, square = 16;
  // Per source word: the encoder's layer, keys and values for the decoder; per target word: six projections.
  EXPECT_EQ(model->macs_per_pair(3, 2),
            3 * (4 * square + ffn + 2 * square) + 2 * (6 * square + ffn) + 2 * 4 * (3 * 3 + (1 + 2) + 3 * 2));
}

TEST(Transformer, InitialValuesAreFairseqs) {
  const auto specs = model_of("d: 64, heads: 4, ffn: 32")->parameters();
  Context ctx;
  ParameterStore params;
  for (const ParameterSpec& s : specs) params.add(ctx, s, RandomKey(3));
  const auto largest = [&](const std::string& name) {
    float most = 0;
    for (const float x : params.at(name).value().values<float>()) most = std::max(most, std::abs(x));
    return static_cast<double>(most);
  };
  // Uniform in [-a, a], a = sqrt(6 / (in + out)); queries, keys and values as one matrix of 3 d outputs.
  const double joint = std::sqrt(6.0 / (64 + 3 * 64));
  for (const char* name : {"decoder.0.self.qkv.weight", "decoder.0.cross.q.weight", "decoder.0.cross.kv.weight"}) {
    EXPECT_LE(largest(name), joint) << name;
    EXPECT_GT(largest(name), 0.99 * joint) << name;
  }
  EXPECT_NEAR(largest("encoder.5.ffn.in.weight"), std::sqrt(6.0 / (64 + 32)), 0.01);
  EXPECT_EQ(largest("encoder.0.self.qkv.bias"), 0);
  double squares = 0;
  const Tensor& table = params.at("embedding.weight").value();
  for (const float x : table.values<float>()) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(squares / static_cast<double>(table.numel()), 1.0 / 64, 0.002);
}

TEST(Transformer, Errors) {
  EXPECT_THAT(lmx_test::user_error([] { model_of("d: 10, heads: 4"); }), Names("model: d 10", "4 heads"));
  EXPECT_THAT(lmx_test::user_error([] { model_of("d: 9, heads: 3"); }), Names("d 9", "3 heads"));
  EXPECT_THAT(lmx_test::user_error([] { model_of("norm: both"); }), Names("post"));
  Network both(kSmall), alone("encoder_layers: 0, decoder_layers: 1, d: 8, heads: 2, ffn: 10");
  Batch batch = batch_of({0});
  EXPECT_THAT(lmx_test::user_error([&] { alone.loss_of(batch); }), Names("parallel text"));
  EXPECT_THAT(
      lmx_test::user_error([&] { alone.model->decode(alone.ctx, alone.params, batch.source, batch.source_lengths); }),
      Names("not translate"));
  batch.source = Tensor();
  EXPECT_THAT(lmx_test::user_error([&] { both.loss_of(batch); }), Names("source sentences"));
}

// ---- a language model

Batch windows_of(const std::vector<int64_t>& slots, int64_t steps) {
  return testing::windows_of(slots, steps, [](int64_t slot, int64_t t) { return word(slot, t, 5); });
}

TEST(TransformerLanguageModel, GradientsAreTrue) {
  expect_true_gradients("encoder_layers: 0, decoder_layers: 2, d: 8, heads: 2, ffn: 10, dropout: 0.2",
                        windows_of({0, 3}, 5));
}

TEST(TransformerLanguageModel, DocumentsOfAWindowAreThoseDocumentsAlone) {
  const std::string fields = "encoder_layers: 0, decoder_layers: 2, d: 8, heads: 2, ffn: 10, dropout: ";
  Network net(fields + "0"), noisy(fields + "0.3");
  const Batch batch = windows_of({0, 1, 2}, 9);
  testing::expect_documents_apart(net, noisy, batch.inputs.data<int32_t>()[4], batch);
}

TEST(TransformerLanguageModel, NoWordSeesTheFuture) {
  Network net("encoder_layers: 0, decoder_layers: 2, d: 8, heads: 2, ffn: 10, dropout: 0");
  Batch batch = windows_of({0, 1}, 6);
  const std::vector<double> before = net.differentiate(batch).features;
  batch.inputs.data<int32_t>()[4] = (batch.inputs.data<int32_t>()[4] + 1) % kWords;
  const std::vector<double> after = net.differentiate(batch).features;
  for (size_t i = 0; i < before.size(); ++i) {
    const bool own = i / 8 == 4 || i / 8 == 5;  // the changed word and the one after it
    if (!own) {
      EXPECT_EQ(before[i], after[i]) << i;
    }
  }
  EXPECT_NE(before[5 * 8], after[5 * 8]);
}

}  // namespace
}  // namespace lmx
