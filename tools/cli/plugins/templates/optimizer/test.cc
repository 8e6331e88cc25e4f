// Tests of the properties that only this optimizer has; `lmx plugins check` tests those of every optimizer.
#include <gtest/gtest.h>

#include "lmx/optim.h"
#include "lmx/plugin.h"

namespace {

std::unique_ptr<lmx::Optimizer> make(const std::string& yaml) {
  lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
  return lmx::make_optimizer(lmx::parse_yaml(yaml, "test"), "optimizer");
}

TEST(@Name@, StepsHaveTheSizeOfTheLearningRate) {
  const auto optimizer = make("{name: @name@, b1: 0.5, b2: 0.9}");
  lmx::Context ctx;
  const auto tensor = [&](std::vector<float> values) { return lmx::Tensor::from<float>(ctx.host, {3}, values); };
  lmx::Var p(tensor({1, 1, 1}), true, "p");
  p.grad().dense = tensor({5, -0.25f, 0});
  optimizer->update(ctx, p, 0.25, 1);
  EXPECT_EQ(p.value().data<float>()[0], 0.75f);
  EXPECT_EQ(p.value().data<float>()[1], 1.25f);
  EXPECT_EQ(p.value().data<float>()[2], 1.0f);
  EXPECT_NEAR(optimizer->state().at("p.momentum").data<float>()[0], 0.5f, 1e-6f);
  p.grad().dense = tensor({-0.1f, 0, 0});  // weaker than the momentum of the first gradient
  optimizer->update(ctx, p, 0.25, 2);
  EXPECT_EQ(p.value().data<float>()[0], 0.5f);
  EXPECT_EQ(p.value().data<float>()[1], 1.5f);
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(make("{name: @name@, b1: 2}"), lmx::UserError);
}

}  // namespace
