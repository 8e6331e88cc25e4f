// Beam search over a small Transformer's incremental decoding against every sentence that can be written, scored by the
// forward pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "app/translation/search.h"
#include "app/translation/translate.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/plugin.h"
#include "ops/gradcheck.h"

namespace lmx {
namespace {

constexpr int64_t kSearchVocab = 5, kLongest = 3;

class TransformerSearch : public ::testing::Test {
 protected:
  void SetUp() override {
    const Node config =
        parse_yaml("{name: transformer, encoder_layers: 1, decoder_layers: 2, d: 8, heads: 2, ffn: 8}", "t");
    Registry::instance().add_default_directories();
    model_ = create<ModelFactory>(Registry::instance().find(PluginKind::model, config, "model"), config, "model",
                                  ModelEnv{kSearchVocab});
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
}  // namespace lmx
