// A decoder composed of public ops: gradients in f64 with its own term in the loss, and that term.
#include "fixture.h"
#include "lmx/array_ops.h"
#include "lmx/model.h"
#include "ops/gradcheck.h"

namespace lmx {
namespace {

using namespace lmx_test;

constexpr int64_t kVocab = 11, kLength = 5;

std::unique_ptr<Model> make(const std::string& fields) {
  static const bool added = [] {
    Registry::instance().add_directory(built("composed"));
    return true;
  }();
  static_cast<void>(added);
  const Node config = parse_yaml("{name: composed_decoder, " + fields + "}", "test");
  return create<ModelFactory>(Registry::instance().find(PluginKind::model, config, "model"), config, "model",
                              ModelEnv{kVocab});
}

Batch batch() {
  Batch b;
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < 2 * kLength; ++i) ids.push_back(static_cast<int32_t>(RandomKey(3).below(i, kVocab)));
  b.inputs = Tensor::from<int32_t>(Allocator::cpu(), {2, kLength}, ids);
  b.targets = b.inputs;
  b.slots = {0, 1};
  b.fresh = {0, 0};
  return b;
}

constexpr const char* kSmall = "layers: 2, d: 8, heads: 4, kv_heads: 2, ffn: 6, activation: 0.7";

TEST(ComposedDecoder, GradientsEqualDifferencesWithTheTerm) {
  const std::unique_ptr<Model> model = make(kSmall);
  const std::vector<ParameterSpec> specs = model->parameters();
  Context f64 = testing::f64_context();
  ParameterStore params;
  std::vector<Var> leaves;
  for (const ParameterSpec& spec : specs) leaves.push_back(params.add(f64, spec, RandomKey(1)));
  testing::GradcheckOptions options;
  options.per_leaf = 4;
  options.tolerance = 5e-6;
  testing::gradcheck(
      [&](Context& ctx, const std::vector<Var>&) {
        ModelState state;
        LossTerms terms(loss_terms(*model));
        const Var y = forward_training(*model, ctx, params, batch(), state, terms);
        const Var loss = sum(ctx, multiply(ctx, y, Var(testing::f64_tensor(y.shape(), 9))));
        return terms.total(ctx, loss);
      },
      leaves, options);
}

TEST(ComposedDecoder, ItsTermIsTheMeanSquareOfTheFeatures) {
  const std::unique_ptr<Model> model = make(kSmall);
  Context ctx;
  ParameterStore params;
  for (const ParameterSpec& spec : model->parameters()) params.add(ctx, spec, RandomKey(1));
  ModelState state;
  LossTerms terms(loss_terms(*model));
  const Tensor y = forward_training(*model, ctx, params, batch(), state, terms).value();
  double squares = 0;
  for (const float x : y.values<float>()) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_EQ(loss_terms(*model), (std::vector<std::string>{"activation"}));
  EXPECT_NEAR(terms.values(ctx).at(0), 0.7 * squares / 8, 1e-4);
  const Var loss(testing::f64_tensor({1}, 4).to(DType::f32));
  EXPECT_NEAR(*terms.total(ctx, loss).value().data<float>(), *loss.value().data<float>() + terms.values(ctx)[0], 1e-4);
  EXPECT_TRUE(LossTerms(std::vector<std::string>{}).total(ctx, loss).same(loss));
}

TEST(ComposedDecoder, RefusesHeadsThatDoNotDivide) {
  EXPECT_THAT(user_error([] { make("d: 8, heads: 4, kv_heads: 3"); }), Names("heads 4", "kv_heads 3"));
}

}  // namespace
}  // namespace lmx
