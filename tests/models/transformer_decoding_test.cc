// Decoding by models that keep their keys and values: texts of language models, and beam search of a Transformer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "app/inference/generate.h"
#include "app/translation/search.h"
#include "app/translation/translate.h"
#include "lmx/loss.h"
#include "models/made_model.h"
#include "ops/gradcheck.h"

namespace lmx::app {

// Texts of language models that keep their keys and values: the same features as a forward pass over the whole text,
// and the same drawn text.

namespace {

constexpr int64_t kTextVocab = 29;

struct TextModelCase {
  const char *name, *model;
};

class TextDecoding : public ::testing::TestWithParam<TextModelCase> {
 protected:
  void make(DType compute) {
    model_ = testing::made_model(GetParam().model, kTextVocab);
    ctx_.compute = compute;
    ctx_.training = false;
    const LossEnv env{kTextVocab, model_->feature_size(), nullptr, model_->parameters(), model_->output_table()};
    loss_ = make_loss(parse_yaml("{name: full_softmax}", "test"), "loss", env);
    for (const ParameterSpec& spec : all_parameters(model_->parameters(), *loss_))
      params_.add(ctx_, spec, RandomKey(1));
  }

  // Features of every position of one text, read at once.
  Tensor whole(const std::vector<int32_t>& ids) {
    Batch batch;
    batch.inputs = Tensor::from<int32_t>(ctx_.allocator, {1, static_cast<int64_t>(ids.size())}, ids);
    batch.targets = batch.inputs;
    batch.slots = {0};
    batch.fresh = {0};
    ModelState state;
    return model_->forward(ctx_, params_, batch, state).value();
  }

  static std::vector<int32_t> words(uint64_t seed, int64_t n) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i)
      ids.push_back(static_cast<int32_t>(RandomKey(seed).below(static_cast<uint64_t>(i), kTextVocab)));
    return ids;
  }

  static double difference(const Tensor& a, const Tensor& b) {
    const Tensor x = a.to(DType::f64), y = b.to(DType::f64);
    double most = 0;
    EXPECT_EQ(x.numel(), y.numel());
    for (int64_t i = 0; i < x.numel(); ++i) most = std::max(most, std::abs(x.data<double>()[i] - y.data<double>()[i]));
    return most;
  }

  Context ctx_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;
  ParameterStore params_;
};

// 150 positions: room is made twice.
TEST_P(TextDecoding, StepsGiveTheFeaturesOfOneForward) {
  for (const auto& [compute, limit] :
       std::vector<std::pair<DType, double>>{{DType::f64, 1e-12}, {DType::f32, 1e-5}, {DType::bf16, 6e-2}}) {
    params_ = ParameterStore();
    make(compute);
    const std::vector<int32_t> one = words(1, 150), two = words(2, 150);
    const Tensor first = whole(one), second = whole(two);
    const auto text = start_text(*model_, ctx_, params_, 2);
    ASSERT_NE(text, nullptr);
    for (size_t t = 0; t < one.size(); ++t) {
      const std::vector<int32_t> ids{one[t], two[t]};
      const Tensor step = text->step(ctx_, ids);
      const auto at = static_cast<int64_t>(t);
      ASSERT_LE(difference(step.slice(0, 1), first.slice(at, at + 1)), limit) << name_of(compute) << " position " << t;
      ASSERT_LE(difference(step.slice(1, 2), second.slice(at, at + 1)), limit) << name_of(compute) << " position " << t;
    }
  }
}

// The prompts fill a part of the memory at the start, all of it, and more than twice as much.
TEST_P(TextDecoding, APromptReadAtOnceGivesTheFeaturesOfOneForward) {
  for (const auto& [compute, limit] :
       std::vector<std::pair<DType, double>>{{DType::f64, 1e-12}, {DType::f32, 1e-5}, {DType::bf16, 6e-2}}) {
    for (const int64_t prompt : {1, 3, 64, 150}) {
      params_ = ParameterStore();
      make(compute);
      const std::vector<int32_t> one = words(1, prompt + 3), two = words(2, prompt + 3);
      const Tensor first = whole(one), second = whole(two);
      const auto text = start_text(*model_, ctx_, params_, 2);
      std::vector<int32_t> ids(one.begin(), one.end() - 3);
      ids.insert(ids.end(), two.begin(), two.end() - 3);
      Tensor features = text->read(ctx_, ids, 2);
      for (int64_t at = prompt - 1;; ++at) {
        SCOPED_TRACE(str(name_of(compute), ", prompt of ", prompt, ", position ", at));
        ASSERT_EQ(features.dim(0), 2);
        ASSERT_LE(difference(features.slice(0, 1), first.slice(at, at + 1)), limit);
        ASSERT_LE(difference(features.slice(1, 2), second.slice(at, at + 1)), limit);
        if (at + 1 == first.dim(0)) break;
        const auto next = static_cast<size_t>(at + 1);
        features = text->step(ctx_, std::vector<int32_t>{one[next], two[next]});
      }
    }
  }
}

TEST_P(TextDecoding, SelectedRowsContinueTheirTexts) {
  make(DType::f64);
  std::vector<int32_t> one = words(1, 6), two = words(2, 6);
  const auto text = start_text(*model_, ctx_, params_, 2);
  for (size_t t = 0; t < one.size(); ++t) text->step(ctx_, std::vector<int32_t>{one[t], two[t]});
  text->select(ctx_, std::vector<int64_t>{1, 0, 1});
  const Tensor step = text->step(ctx_, std::vector<int32_t>{3, 4, 5});
  const auto after = [&](std::vector<int32_t> ids, int32_t next) {
    ids.push_back(next);
    return whole(ids).slice(6, 7);
  };
  EXPECT_LE(difference(step.slice(0, 1), after(two, 3)), 1e-12);
  EXPECT_LE(difference(step.slice(1, 2), after(one, 4)), 1e-12);
  EXPECT_LE(difference(step.slice(2, 3), after(two, 5)), 1e-12);
}

TEST_P(TextDecoding, DrawsTheSameText) {
  make(DType::f32);
  GenerateOptions options;
  options.temperature = 0.7;
  options.top_k = 12;
  const auto draw = [&](const Tensor& features, size_t i) {
    const Tensor logits = loss_->logits(ctx_, params_, features);
    return draw_token(logits.values<float>(), 0, options, RandomKey(5).uniform(i));
  };
  std::vector<int32_t> cached{0}, plain{0};
  const auto text = start_text(*model_, ctx_, params_, 1);
  for (size_t i = 0; i < 80; ++i) {
    cached.push_back(draw(text->step(ctx_, {&cached.back(), 1}), i));
    const Tensor features = whole(plain);
    plain.push_back(draw(features.slice(features.dim(0) - 1, features.dim(0)), i));
  }
  EXPECT_EQ(cached, plain);
  EXPECT_GT(std::set<int32_t>(plain.begin(), plain.end()).size(), 8u);
}

#define LMX_TRANSFORMER \
  "name: transformer, encoder_layers: 0, decoder_layers: 2, d: 12, heads: 2, ffn: 20, dropout: 0.3"
#define LMX_GPT "name: gpt, layers: 2, d: 12, ffn: 20, dropout: 0.3"
INSTANTIATE_TEST_SUITE_P(
    Models, TextDecoding,
    ::testing::Values(
        TextModelCase{"transformer_post", "{" LMX_TRANSFORMER ", norm: post}"},
        TextModelCase{"transformer_pre", "{" LMX_TRANSFORMER ", norm: pre}"},
        TextModelCase{"gpt2",
                      "{" LMX_GPT ", heads: 3, positions: learned, norm: layer, activation: gelu_tanh, bias: true}"},
        TextModelCase{"llama", "{" LMX_GPT ", heads: 6, kv_heads: 1, tie: false, rope_scaling: {factor: 4}}"},
        TextModelCase{"qwen3", "{" LMX_GPT ", heads: 4, kv_heads: 2, head_size: 6, qk_norm: true}"}),
    [](const auto& p) { return std::string(p.param.name); });
#undef LMX_GPT
#undef LMX_TRANSFORMER

TEST(TextDecodingOfATranslator, IsNotOffered) {
  const auto model = testing::made_model("{name: transformer, d: 8, heads: 2, ffn: 8}", kTextVocab);
  Context ctx;
  EXPECT_EQ(start_text(*model, ctx, ParameterStore(), 1), nullptr);
}

// Beam search over a small Transformer's incremental decoding against every sentence that can be written, scored by the
// forward pass.

constexpr int64_t kSearchVocab = 5, kLongest = 3;

class TransformerSearch : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = testing::made_model("{name: transformer, encoder_layers: 1, decoder_layers: 2, d: 8, heads: 2, ffn: 8}",
                                 kSearchVocab);
    loss_ = make_loss(parse_yaml("{name: full_softmax, bias: false}", "test"), "loss",
                      {kSearchVocab, model_->feature_size(), nullptr, model_->parameters(), model_->output_table()});
    for (const ParameterSpec& spec : all_parameters(model_->parameters(), *loss_)) {
      Var& v = params_.add(ctx_, spec, RandomKey(6));
      if (spec.shape.rank() == 1) {  // likelihoods that differ
        for (int64_t i = 0; i < v.value().numel(); ++i) {
          v.value().data<float>()[i] +=
              static_cast<float>(RandomKey(7).fold(spec.name).normal(static_cast<uint64_t>(i)));
        }
      }
    }
    ctx_.training = false;
  }

  // log P(words </s> | source).
  double log_probability(const Tensor& source, std::vector<int32_t> words) {
    Batch b;
    b.source = source;
    b.source_lengths = {source.numel()};
    std::vector<int32_t> targets = words;
    targets.push_back(Vocabulary::kEos);
    words.insert(words.begin(), Vocabulary::kEos);
    b.inputs = testing::ids_tensor(words);
    b.targets = testing::ids_tensor(targets);
    b.lengths = {static_cast<int64_t>(words.size())};
    b.slots = {0};
    ModelState state;
    const Tensor nll = loss_->evaluate(ctx_, params_, model_->forward(ctx_, params_, b, state).value(), b.targets);
    double sum = 0;
    for (const float x : nll.values<float>()) sum -= static_cast<double>(x);
    return sum;
  }

  Context ctx_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;
  ParameterStore params_;
};

TEST_F(TransformerSearch, AWideBeamIsExhaustive) {
  const std::vector<std::vector<int32_t>> sources{{2, 1}, {3, 4, 2, 1}, {1}};
  std::vector<int32_t> flat;
  std::vector<int64_t> lengths;
  for (const auto& s : sources) {
    flat.insert(flat.end(), s.begin(), s.end());
    lengths.push_back(static_cast<int64_t>(s.size()));
  }
  SearchOptions options;
  options.beam = 64;
  options.length_penalty = "none";
  options.max_factor = 0;
  options.max_offset = kLongest;
  const auto decoding = model_->decode(ctx_, params_, testing::ids_tensor(flat), lengths);
  const auto logits = [&](const Tensor& features) { return loss_->logits(ctx_, params_, features); };
  const auto found = beam_search(ctx_, *decoding, logits, lengths, options);
  ASSERT_EQ(found.size(), sources.size());
  for (size_t s = 0; s < sources.size(); ++s) {
    // Every sentence of the words that may be written.
    std::map<std::vector<int32_t>, double> all;
    std::vector<std::vector<int32_t>> level{{}};
    for (int64_t length = 0; length <= kLongest; ++length) {
      std::vector<std::vector<int32_t>> longer;
      for (const std::vector<int32_t>& words : level) {
        all[words] = log_probability(testing::ids_tensor(sources[s]), words);
        for (int32_t w = 0; w < kSearchVocab; ++w) {
          if (w == Vocabulary::kEos || w == Vocabulary::kUnk) continue;
          longer.push_back(words);
          longer.back().push_back(w);
        }
      }
      level = std::move(longer);
    }
    ASSERT_EQ(all.size(), 1u + 3 + 9 + 27);
    ASSERT_EQ(found[s].size(), all.size());
    double before = INFINITY;
    for (const Hypothesis& h : found[s]) {
      ASSERT_TRUE(all.contains(h.ids));
      EXPECT_NEAR(h.logprob, all.at(h.ids), 1e-4);
      EXPECT_LE(h.logprob, before + 1e-9);
      before = h.logprob;
    }
    const double best =
        std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.second < b.second; })->second;
    EXPECT_NEAR(found[s][0].logprob, best, 1e-4);
  }
}

}  // namespace
}  // namespace lmx::app
