// `loss: two_stage_softmax`: which words it draws, those that a plan names, and the weight that it may share with the
// model.
#include <set>

#include "lmx/loss.h"
#include "lmx/row_sampling.h"
#include "ops/gradcheck.h"
#include "test.h"
#include "yaml.h"

namespace lmx {
namespace {

using namespace lmx_test;
using testing::dense_gradient;

constexpr int64_t kWordsInTable = 60, kHidden = 6;
using Rows = std::vector<int32_t>;

// A table that is looked up and a loss on what was found, in f64.
struct TwoStage {
  explicit TwoStage(const std::string& text, int64_t words = kWordsInTable) {
    ctx.compute = DType::f64;
    ctx.tape = &tape;
    const std::vector<ParameterSpec> model{{"embedding.weight", {words, kHidden}, {"normal", 0.7}, true}};
    loss = make_loss(yaml(text), "loss", {words, kHidden, nullptr, model});
    for (const ParameterSpec& spec : all_parameters(model, *loss)) params.add(ctx, spec, RandomKey(5));
  }
  double step(const Rows& inputs, const Rows& targets, const StepPlan& plan) {
    const Tensor out = testing::ids_tensor(targets);
    const Var features = embedding(ctx, params.at("embedding.weight"), testing::ids_tensor(inputs));
    const Var value = loss->forward(ctx, params, features, out, plan).loss;
    const double nats = *value.value().data<double>();
    tape.backward(ctx, value);
    return nats;
  }
  Rows trained(const std::string& name) {
    Gradient& g = params.at(name).grad();
    EXPECT_TRUE(g.sparse()) << name;
    g.coalesce(ctx);
    return g.pieces[0].indices;
  }
  double full(const Rows& inputs, const Rows& targets) {
    const Var features = embedding(ctx, params.at("embedding.weight"), testing::ids_tensor(inputs));
    tape.clear();
    const Tensor nll = loss->evaluate(ctx, params, features.value(), testing::ids_tensor(targets));
    double sum = 0;
    for (const float x : nll.values<float>()) sum += static_cast<double>(x);
    return sum;
  }

  Context ctx;
  Tape tape;
  std::unique_ptr<Loss> loss;
  ParameterStore params;
};

const Rows kInputs{3, 0, 59, 3}, kTargets{40, 41, 40, 59};

TEST(TwoStageLoss, Defaults) {
  const Node full = full_loss_config(yaml("name: two_stage_softmax"), "loss");
  for (const auto& [key, value] :
       {std::pair("p", "10.0"), {"q", "10.0"}, {"mu", "5.0"}, {"dx_set", "all"}, {"tie", ""}})
    EXPECT_EQ(full.at_path(key)->text, value) << key;
  const TwoStage f("name: two_stage_softmax");
  EXPECT_TRUE(f.params.spec("softmax.weight").sparse);
  EXPECT_TRUE(f.params.spec("softmax.bias").sparse);
}

TEST(TwoStageLoss, DrawsTheTargetsTheFrequentAndTheRandomWords) {
  TwoStage f("{name: two_stage_softmax, p: 10, q: 20, mu: 30}");
  const StepPlan plan{.sampler_key = RandomKey(1)};
  const double value = f.step(kInputs, kTargets, plan);
  const Rows rows = f.trained("softmax.weight");
  EXPECT_THAT(rows, ::testing::IsSupersetOf({0, 1, 2, 3, 4, 5, 40, 41, 59}));
  EXPECT_LE(rows.size(), 6u + 12u + 3u);
  EXPECT_EQ(rows, f.trained("softmax.bias"));
  EXPECT_LT(value, f.full(kInputs, kTargets));  // a sum over fewer words
  f.params.clear_gradients();
  EXPECT_EQ(f.step(kInputs, kTargets, plan), value);
  f.params.clear_gradients();
  EXPECT_NE(f.step(kInputs, kTargets, {.sampler_key = RandomKey(2)}), value);
  EXPECT_NE(f.trained("softmax.weight"), rows);
}

// What V_gamma does: the loss grows with every word that takes probability, the words that take gradients stay.
TEST(TwoStageLoss, MoreNoiseMoreLoss) {
  double before = 0;
  Rows rows;
  for (const char* mu : {"0", "20", "60", "100"}) {
    TwoStage f(std::string("{name: two_stage_softmax, mu: ") + mu + "}");
    const double value = f.step(kInputs, kTargets, {.sampler_key = RandomKey(1)});
    EXPECT_GT(value, before) << mu;
    if (!rows.empty()) {
      EXPECT_EQ(f.trained("softmax.weight"), rows);
    }
    rows = f.trained("softmax.weight");
    before = value;
    if (std::string(mu) == "100") {
      EXPECT_NEAR(value, f.full(kInputs, kTargets), 1e-4);
    }
  }
}

TEST(TwoStageLoss, WithAllWordsItIsTheFullSoftmax) {
  for (const char* mu : {"0", "5"}) {
    TwoStage two(std::string("{name: two_stage_softmax, p: 100, mu: ") + mu + "}"), full("name: full_softmax");
    EXPECT_DOUBLE_EQ(two.step(kInputs, kTargets, {}), full.step(kInputs, kTargets, {}));
    for (const char* name : {"embedding.weight", "softmax.weight", "softmax.bias"}) {
      const std::vector<double> a = dense_gradient(two.params.at(name)), b = dense_gradient(full.params.at(name));
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-13) << name;
    }
  }
}

TEST(TwoStageLoss, TakesTheRowsOfThePlan) {
  TwoStage f("{name: two_stage_softmax, p: 50, q: 50}");
  StepPlan plan{.sampler_key = RandomKey(1), .rows = {{"softmax.weight", {7, 40, 41, 58, 59}}}};
  f.step(kInputs, kTargets, plan);
  EXPECT_EQ(f.trained("softmax.weight"), plan.rows.at("softmax.weight"));
  // A second micro-batch of the same step: the plan covers both.
  f.step({1, 2}, {58, 7}, plan);
  EXPECT_EQ(f.trained("softmax.weight"), plan.rows.at("softmax.weight"));
  EXPECT_THROW(f.step({1}, {0}, plan), UserError);
}

// Without a plan each micro-batch adds its own targets to the words that the step has drawn.
TEST(TwoStageLoss, MicroBatchesShareTheirDraw) {
  const std::string text = "{name: two_stage_softmax, p: 0, q: 30}";
  TwoStage parts(text), none(text);
  const StepPlan plan{.sampler_key = RandomKey(1)};
  parts.step({1, 2}, {58, 57}, plan);
  parts.step({3}, {56}, plan);
  none.step({1}, {58}, plan);
  Rows expected = none.trained("softmax.weight");
  EXPECT_EQ(parts.trained("softmax.weight"), union_rows(expected, Rows{56, 57, 58}));
}

TEST(TwoStageLoss, TinyVocabularies) {
  for (const int64_t words : {1, 2, 3}) {
    for (const char* config : {"{name: two_stage_softmax}", "{name: two_stage_softmax, p: 0, q: 0, mu: 0}",
                               "{name: two_stage_softmax, p: 80, q: 80, mu: 80}"}) {
      TwoStage f(config, words);
      const auto last = static_cast<int32_t>(words - 1);
      EXPECT_GE(f.step({0, last}, {last, last}, {.sampler_key = RandomKey(1)}), 0);
      EXPECT_THAT(f.trained("softmax.weight"), ::testing::Contains(last));
    }
  }
  TwoStage alone("{name: two_stage_softmax, p: 0, q: 0, mu: 0}");
  EXPECT_EQ(alone.step({1}, {9}, {}), 0);  // a target among itself
}

TEST(TwoStageLoss, Errors) {
  TwoStage f("name: two_stage_softmax");
  EXPECT_THAT(lmx_test::user_error([&] { f.step({1}, {60}, {}); }), Names("60"));
  EXPECT_THAT(lmx_test::user_error([] { TwoStage("{name: two_stage_softmax, mu: 101}"); }),
              Names("loss.mu:", "[0, 100]"));
  EXPECT_THAT(lmx_test::user_error([] { TwoStage("{name: two_stage_softmax, dx_set: both}"); }), Names("all, forward"));
}

// Tied tables. ------------------------------------------------------------------------------------------------------

const char* const kLosses[] = {"name: full_softmax", "name: sampled_softmax, samples: 9", "name: two_stage_softmax"};

TEST(Tied, OneParameterForBothUses) {
  for (const std::string text : kLosses) {
    const TwoStage f("{" + text + ", tie: embedding.weight}");
    EXPECT_EQ(f.params.names(), (std::vector<std::string>{"embedding.weight", "softmax.bias"})) << text;
    EXPECT_EQ(f.params.spec("embedding.weight").sparse, text != "name: full_softmax");
    EXPECT_EQ(f.params.spec("embedding.weight").init.kind, "normal");  // the model's
  }
}

TEST(Tied, TheGradientIsTheSumOfBothUses) {
  for (const std::string text : kLosses) {
    TwoStage tied("{" + text + ", tie: embedding.weight}"), apart("{" + text + "}");
    apart.params.at("softmax.weight").value().copy_from(tied.params.at("embedding.weight").value());
    apart.params.at("embedding.weight").value().copy_from(tied.params.at("embedding.weight").value());
    const StepPlan plan{.sampler_key = RandomKey(3)};
    for (int micro = 0; micro < 2; ++micro)
      EXPECT_EQ(tied.step(kInputs, kTargets, plan), apart.step(kInputs, kTargets, plan)) << text;
    const bool dense = text == "name: full_softmax";
    EXPECT_EQ(tied.params.at("embedding.weight").grad().dense.defined(), dense) << text;
    tied.params.at("embedding.weight").grad().coalesce(tied.ctx);
    EXPECT_EQ(tied.params.at("embedding.weight").grad().pieces.size(), dense ? 0u : 1u);
    const std::vector<double> a = dense_gradient(apart.params.at("embedding.weight")),
                              b = dense_gradient(apart.params.at("softmax.weight")),
                              both = dense_gradient(tied.params.at("embedding.weight"));
    for (size_t i = 0; i < both.size(); ++i) ASSERT_NEAR(both[i], a[i] + b[i], 1e-12) << text << ' ' << i;
  }
}

TEST(Tied, ThePlansRowsAreThoseOfTheTable) {
  TwoStage f("{name: two_stage_softmax, tie: embedding.weight}");
  f.step({7}, {41}, {.rows = {{"embedding.weight", {2, 41}}}});
  EXPECT_EQ(f.trained("softmax.bias"), (Rows{2, 41}));
  EXPECT_EQ(f.trained("embedding.weight"), (Rows{2, 7, 41}));
}

TEST(Tied, GradientsOfASampledSoftmaxStaySmall) {
  constexpr int64_t kWords = 50'000;
  for (const std::string text :
       {"name: sampled_softmax, samples: 50", "name: two_stage_softmax, p: 0.1, q: 0.1, mu: 0.1"}) {
    TwoStage f("{" + text + ", tie: embedding.weight}", kWords);
    f.step(kInputs, kTargets, {.sampler_key = RandomKey(1)});
    f.trained("embedding.weight");
    const MemoryStats m = f.ctx.allocator->stats();
    EXPECT_LT(m.peak[static_cast<size_t>(MemClass::gradients)], kWords * kHidden * 8 / 50) << text;
  }
}

TEST(Tied, Errors) {
  const auto message = [](const std::string& text, const std::vector<ParameterSpec>& model) {
    return lmx_test::user_error([&] { make_loss(yaml(text), "loss", {kWordsInTable, kHidden, nullptr, model}); });
  };
  const std::vector<ParameterSpec> model{{"embedding.weight", {kWordsInTable, 4}, {}, true},
                                         {"lstm.0.bias", {kHidden}, {}, false}};
  EXPECT_EQ(message("{name: full_softmax, tie: embedding.weight}", model),
            "r.yaml:1:27: loss.tie: embedding.weight is (60, 4), the output layer (60, 6): to be tied, the embedding's "
            "size, 4, must be that of the model's features, 6");
  EXPECT_EQ(
      message("{name: full_softmax, tie: embeding.weight}", model),
      "r.yaml:1:27: loss.tie: the model has no parameter 'embeding.weight' (did you mean 'embedding.weight'?); it has "
      "embedding.weight, lstm.0.bias");
  EXPECT_THAT(message("{name: sampled_softmax, tie: lstm.0.bias}", model), Names("lstm.0.bias", "(6)", "(60, 6)"));
  EXPECT_THAT(message("{name: two_stage_softmax, tie: x}", {}), Names("has none"));
}

}  // namespace
}  // namespace lmx
