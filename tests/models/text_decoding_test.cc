// Texts of the Transformer's language model that keep their keys and values: the same features as a forward pass over
// the whole text, and the same drawn text.
#include <gtest/gtest.h>

#include <set>

#include "app/inference/generate.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/plugin.h"
#include "ops/gradcheck.h"

namespace lmx {
namespace {

constexpr int64_t kTextVocab = 29;

class TextDecoding : public ::testing::TestWithParam<const char*> {
 protected:
  void make(DType compute) {
    const std::string fields =
        str("{name: transformer, encoder_layers: 0, decoder_layers: 2, d: 12, heads: 2, ffn: 20, "
            "dropout: 0.3, norm: ",
            GetParam(), "}");
    const Node config = parse_yaml(fields, "test");
    Registry::instance().add_default_directories();
    model_ = create<ModelFactory>(Registry::instance().find(PluginKind::model, config, "model"), config, "model",
                                  ModelEnv{kTextVocab});
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
    return train::draw_token(logits.values<float>(), 1, options, RandomKey(5).uniform(i));
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

INSTANTIATE_TEST_SUITE_P(Norms, TextDecoding, ::testing::Values("post", "pre"));

TEST(TextDecodingOfATranslator, IsNotOffered) {
  const Node config = parse_yaml("{name: transformer, d: 8, heads: 2, ffn: 8}", "test");
  Registry::instance().add_default_directories();
  const auto model = create<ModelFactory>(Registry::instance().find(PluginKind::model, config, "model"), config,
                                          "model", ModelEnv{kTextVocab});
  Context ctx;
  EXPECT_EQ(start_text(*model, ctx, ParameterStore(), 1), nullptr);
}

}  // namespace
}  // namespace lmx
