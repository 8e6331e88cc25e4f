// What this model promises beyond what `lmx plugins check` asks of every model.
#include <gtest/gtest.h>

#include "lmx/model.h"
#include "lmx/plugin.h"

namespace {

std::unique_ptr<lmx::Model> make(const std::string& yaml, int64_t vocabulary) {
  lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
  const lmx::Node config = lmx::parse_yaml(yaml, "test");
  const lmx::PluginInfo& plugin = lmx::Registry::instance().find(lmx::PluginKind::model, config, "model");
  return lmx::create<lmx::ModelFactory>(plugin, config, "model", lmx::ModelEnv{vocabulary});
}

TEST(@Name@, FeaturesDependOnTheWordAlone) {
  const auto model = make("{name: @name@, embedding: 8, hidden: 5}", 10);
  lmx::Context ctx;
  ctx.training = false;
  lmx::ParameterStore params;
  for (const lmx::ParameterSpec& spec : model->parameters()) params.add(ctx, spec, lmx::RandomKey(1));

  lmx::Batch batch;
  const std::vector<int32_t> words{3, 4, 3};
  batch.inputs = lmx::Tensor::from<int32_t>(ctx.host, {1, 3}, words);
  batch.targets = batch.inputs;
  batch.slots = {0};
  batch.fresh = {1};
  lmx::ModelState state = model->initial_state(ctx, 1);
  const lmx::Tensor features = model->forward(ctx, params, batch, state).value();
  ASSERT_EQ(features.shape(), (lmx::Shape{3, 5}));
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(features.data<float>()[i], features.data<float>()[10 + i]);  // the word 3, twice
    EXPECT_NE(features.data<float>()[i], features.data<float>()[5 + i]);
  }
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(make("{name: @name@, hidden: 0}", 10), lmx::UserError);
}

}  // namespace
