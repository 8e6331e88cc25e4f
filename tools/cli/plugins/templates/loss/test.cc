// Tests of the properties that only this loss has; `lmx plugins check` tests those of every loss.
#include <gtest/gtest.h>

#include <cmath>

#include "lmx/loss.h"
#include "lmx/plugin.h"

namespace {

// The loss of one target whose probability is p, in a vocabulary of two words.
double loss_of(const std::string& yaml, double p) {
  lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
  const auto loss = lmx::make_loss(lmx::parse_yaml(yaml, "test"), "loss", {.vocab_size = 2, .feature_size = 1});
  lmx::Context ctx;
  lmx::ParameterStore params;
  for (const lmx::ParameterSpec& spec : loss->parameters()) params.add(ctx, spec, lmx::RandomKey(1));
  float* weight = params.at("softmax.weight").value().data<float>();
  weight[0] = 0;
  weight[1] = static_cast<float>(std::log(p / (1 - p)));  // the logit of word 1, the target
  const lmx::Var features(lmx::Tensor::from<float>(ctx.host, {1, 1}, std::vector<float>{1}));
  const lmx::Tensor targets = lmx::Tensor::from<int32_t>(ctx.host, {1}, std::vector<int32_t>{1});
  const lmx::LossValue value = loss->forward(ctx, params, features, targets, {});
  EXPECT_NEAR(value.nats.data<double>()[0], -std::log(p), 1e-6);
  return static_cast<double>(value.loss.value().data<float>()[0]);
}

TEST(@Name@, TargetsThatAreKnownCountLess) {
  for (const double p : {0.1, 0.5, 0.9}) {
    EXPECT_NEAR(loss_of("{name: @name@, focus: 1}", p), -(1 - p) * std::log(p), 1e-6);
    EXPECT_NEAR(loss_of("{name: @name@, focus: 3}", p), -std::pow(1 - p, 3) * std::log(p), 1e-6);
  }
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(loss_of("{name: @name@, focus: 0}", 0.5), lmx::UserError);
}

}  // namespace
