// Half precision: gradients overflow, the scale falls and rises, and a run reaches the same result as in fp32.
#include <cmath>

#include "runfiles/checkpoint.h"
#include "train/pairs_fixture.h"

namespace lmx::app {
namespace {

using namespace lmx_test;
using testing::Contains;

TEST(LossScale, PresetsAreThoseOfThePapers) {
  LossScaleConfig c;
  EXPECT_EQ(c.resolved().init, 128);
  EXPECT_EQ(c.resolved().window, 2000);
  EXPECT_EQ(c.resolved().min, 1e-4);
  c.preset = "puri";
  EXPECT_EQ(c.resolved().init, 4294967296.0);
  EXPECT_EQ(c.resolved().window, 1000);
  EXPECT_EQ(c.resolved().min, 1);
  EXPECT_EQ(c.resolved().loss, "mean");
  EXPECT_EQ(LossScaleConfig{}.resolved().loss, "sum");
  EXPECT_EQ(LossScaleConfig{.preset = "none"}.resolved().loss, "sum");
  c.window = 3;
  EXPECT_EQ(c.resolved().window, 3);
  EXPECT_EQ(c.resolved().factor, 2);
}

// The seed of backward for a loss that is summed over 400,000 tokens, and the factor for the gradient of their mean.
TEST(LossScale, MultipliesTheLossThatItsPresetWasMadeFor) {
  const ScaleState s{.scale = 1024};
  for (const auto& [config, seed] : {std::pair{LossScaleConfig{.preset = "ott"}, 1024.0},
                                     {LossScaleConfig{.preset = "none"}, 1024.0},
                                     {LossScaleConfig{.preset = "puri"}, 1024 / 400'000.0},
                                     {LossScaleConfig{.preset = "puri", .loss = "sum"}, 1024.0},
                                     {LossScaleConfig{.preset = "ott", .loss = "mean"}, 1024 / 400'000.0}}) {
    const LossScale rule(config, "fp16");
    EXPECT_DOUBLE_EQ(rule.seed(s, 400'000), seed) << config.preset << ' ' << config.loss;
    EXPECT_DOUBLE_EQ(rule.unscale(s, 400'000) * seed, 1 / 400'000.0) << config.preset << ' ' << config.loss;
  }
  EXPECT_DOUBLE_EQ(LossScale({.preset = "puri"}, "fp32").seed(s, 400'000), 1 / 400'000.0);
}

TEST(LossScale, FallsAtAnOverflowAndRisesAfterTheWindow) {
  const LossScale rule({.preset = "ott", .init = 8, .factor = 2, .window = 3, .min = 2}, "fp16");
  ScaleState s = rule.start();
  EXPECT_EQ(s.scale, 8);
  EXPECT_EQ(rule.overflowed(s, 4), 0.5);
  EXPECT_EQ(s.scale, 4);
  EXPECT_EQ(s.last_overflow, 4);
  EXPECT_EQ(rule.passed(s), 1);
  EXPECT_EQ(rule.passed(s), 1);
  EXPECT_EQ(rule.passed(s), 2);
  EXPECT_EQ(s.scale, 8);
  EXPECT_EQ(s.good, 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(rule.overflowed(s, 9), 0.5);
  EXPECT_EQ(s.scale, 2);
  EXPECT_EQ(rule.overflowed(s, 10), 0);  // the scale would fall below its minimum
  EXPECT_EQ(s.scale, 2);
  EXPECT_EQ(s.overflows, 3);
  EXPECT_EQ(s.last_overflow, 9);
}

TEST(LossScale, OtherPrecisionsDoNotScale) {
  for (const char* precision : {"fp32", "bf16"}) {
    const LossScale rule({}, precision);
    EXPECT_FALSE(rule.active());
    EXPECT_EQ(rule.start().scale, 1);
  }
  EXPECT_FALSE(LossScale({.preset = "none"}, "fp16").dynamic());
}

class Fp16 : public PairsTest {};

TEST_F(Fp16, OverflowsRecoversAndComesOutAsFp32) {
  const Changes steps{{"train.steps", "60"}, {"train.eval_every", "60"}};
  const auto with = [&](Changes more) {
    more.insert(more.end(), steps.begin(), steps.end());
    return more;
  };
  const auto fp32 = train("fp32", steps);
  const auto fp16 = train("fp16", with({{"precision", "fp16"}, {"loss_scale", "{init: 16777216, window: 8}"}}));
  EXPECT_GT(fp16.at.loss_scale.overflows, 3);  // 2^24 is much too large
  EXPECT_LT(fp16.at.loss_scale.scale, 16777216);
  EXPECT_FALSE(fp16.at.loss_scale.census.empty());
  EXPECT_NEAR(fp16.at.valid_nll, fp32.at.valid_nll, 0.15);  // the first updates were skipped
  const auto all = records("fp16", "train");
  EXPECT_EQ(all[0]["overflows"], 1);
  EXPECT_EQ(all[0]["loss_scale"], 8388608);
  ASSERT_TRUE(all[0]["nll_nat"].is_number()) << "the loss of a step whose gradients overflow must be finite";
  EXPECT_NEAR(all[0]["nll_nat"], records("fp32", "train")[0]["nll_nat"], 0.01);
  bool rose = false, census = false;
  for (size_t i = 1; i < all.size(); ++i) {
    rose = rose || all[i]["loss_scale"] > all[i - 1]["loss_scale"];
    for (const auto& [key, value] : all[i - 1].items()) census = census || key.starts_with("overflow/");
    EXPECT_TRUE(all[i]["grad_norm"].is_number());
  }
  EXPECT_TRUE(rose);
  EXPECT_TRUE(census);
  // With a suitable scale no gradient is lost.
  const auto calm = train("calm", with({{"precision", "fp16"}}));
  EXPECT_EQ(calm.at.loss_scale.overflows, 0);
  EXPECT_NEAR(calm.at.valid_nll, fp32.at.valid_nll, 0.02);
  EXPECT_NE(calm.params, fp32.params);
  // Scaling off, with a scale that is never raised: gradients below f16's smallest number vanish.
  const auto tiny = train("tiny", with({{"precision", "fp16"}, {"loss_scale", "{init: 1e-9, min: 1e-12}"}}));
  EXPECT_GT(tiny.at.valid_nll, calm.at.valid_nll + 0.1);
}

TEST_F(Fp16, WithoutScalingAnOverflowIsADivergence) {
  const Changes huge{{"precision", "fp16"}, {"loss_scale", "{preset: none, init: 1e9}"}};
  EXPECT_THAT(run_error([&] { train("stop", huge); }), Names("step 1:", "norm", "on_divergence: stop"));
  const Changes least{{"precision", "fp16"}, {"loss_scale", "{init: 1e9, min: 6e8}"}};
  EXPECT_THAT(run_error([&] { train("least", least); }), Names("overflow", "loss_scale.min"));
  // Such a step counts once, as one that is left out.
  const auto left = train("left", {least[0], least[1], {"train.on_divergence", "skip"}});
  EXPECT_EQ(left.at.loss_scale.overflows, 0);
  EXPECT_TRUE(left.at.loss_scale.census.empty());
  for (const auto& record : records("left", "train")) {
    EXPECT_EQ(record["skipped"], 1);
    EXPECT_EQ(record["overflows"], 0);
    for (const auto& [key, value] : record.items()) EXPECT_FALSE(key.starts_with("overflow/")) << key;
  }
}

TEST_F(Fp16, ResumesToTheBit) {
  const Changes fp16{{"precision", "fp16"}, {"loss_scale", "{init: 16777216, window: 4}"}, {"train.steps", "23"}};
  int number = 0;
  for (const auto& [ranks, strategy] : {std::pair{0, "allreduce"}, {2, "allreduce"}, {2, "local_sgd"}}) {
    Changes all = fp16;
    all.emplace_back("sync", str("{all: {params: '.*', strategy: ", strategy, "}}"));
    Changes part = all;
    part[2].second = "5";  // in the middle of the overflows
    const std::string name = str("run", number++);
    const auto whole = train(name + "whole", all, ranks);
    train(name, part, ranks);
    const auto rest = train(name, all, ranks);
    EXPECT_EQ(rest.params, whole.params) << strategy;
    EXPECT_EQ(rest.at.loss_scale.scale, whole.at.loss_scale.scale) << strategy;
    EXPECT_FALSE(whole.at.loss_scale.census.empty()) << strategy;
    EXPECT_EQ(rest.at.loss_scale.census, whole.at.loss_scale.census) << strategy;
  }
}

// A step whose gradients overflow makes no update. The learning rate is that of the next update, and the first update
// is Adam's first, whose length is the learning rate.
TEST_F(Fp16, StepsWithoutAnUpdateCountForTheDataAlone) {
  const auto changes = [](int64_t steps) {
    return Changes{{"precision", "fp16"},
                   {"loss_scale", "{init: 1099511627776, window: 1000}"},
                   {"schedule", "{name: linear, warmup: 40, steps: 100}"},
                   {"train.steps", str(steps)},
                   {"train.eval_every", "100"}};
  };
  const auto whole = train("whole", changes(30));
  const auto all = records("whole", "train");
  int64_t skipped = 0;
  for (const auto& record : all) {
    const auto updates = record["step"].get<int64_t>() - 1 - skipped;
    EXPECT_NEAR(record["lr"].get<double>(), 0.02 * static_cast<double>(updates + 1) / 40, 1e-12) << record["step"];
    skipped += record["overflows"].get<int64_t>();
  }
  ASSERT_GE(skipped, 8);
  EXPECT_EQ(whole.at.updates, 30 - skipped);
  EXPECT_EQ(whole.at.step, 30);
  // All overflows occur at the beginning.
  const auto before = train("before", changes(skipped)), first = train("first", changes(skipped + 1));
  EXPECT_EQ(before.at.updates, 0);
  EXPECT_EQ(first.at.updates, 1);
  float most = 0;
  for (size_t i = 0; i < before.params.size(); ++i) most = std::max(most, std::abs(first.params[i] - before.params[i]));
  EXPECT_NEAR(most, 0.02 / 40, 1e-3 * 0.02 / 40);
}

// The residuals of error feedback are multiplied by exactly the factor of the loss scale.
TEST_F(Fp16, ResidualsFollowTheScaleExactly) {
  const auto changes = [](int64_t window) {
    return Changes{{"precision", "fp16"},
                   {"loss_scale", str("{init: 1024, window: ", window, "}")},
                   {"sync", "{rest: {params: '.*', strategy: one_bit}}"},
                   {"train.steps", "30"},
                   {"train.eval_every", "100"},
                   {"checkpoint.every", "1"},
                   {"checkpoint.keep_last", "99"}};
  };
  train("rising", changes(1), 2);
  train("steady", changes(1000), 2);
  const auto residuals = [&](const std::string& dir, int64_t step) {
    std::map<std::string, std::vector<float>> found;
    const TrainState state = load_checkpoint(path(str(dir, "/checkpoints/step-", step)), Allocator::cpu());
    for (size_t r = 0; r < state.ranks.size(); ++r)
      for (const auto& [name, t] : state.ranks[r])
        if (t.dtype() == DType::f32) {
          const auto values = std::as_const(t).values<float>();
          found[str(r, "/", name)] = {values.begin(), values.end()};
        }
    return found;
  };
  const auto expect_factor = [&](const auto& before, const auto& after, float factor, const std::string& where) {
    ASSERT_EQ(before.size(), after.size()) << where;
    float most = 0;
    for (const auto& [name, values] : before)
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(after.at(name).at(i), factor * values[i]) << where << ' ' << name << ' ' << i;
        most = std::max(most, std::abs(values[i]));
      }
    EXPECT_GT(most, 0) << where;
  };
  // The first update is equal in both runs. After it the scale doubles in one of them.
  expect_factor(residuals("steady", 1), residuals("rising", 1), 2, "rising");
  int overflows = 0;
  for (const auto& record : records("rising", "train")) {
    const auto step = record["step"].get<int64_t>();
    if (record["overflows"] == 0) continue;
    ++overflows;
    expect_factor(residuals("rising", step - 1), residuals("rising", step), 0.5, str("step ", step));
  }
  EXPECT_GE(overflows, 2);
}

// The residuals of error feedback have the scale of the gradients, and are adapted when it changes.
TEST_F(Fp16, EveryStrategyAndCodecRecovers) {
  const Changes fp16{{"precision", "fp16"}, {"loss_scale", "{init: 1048576, window: 8}"}, {"train.steps", "60"}};
  const char* rules[] = {"{rest: {params: '.*', strategy: allreduce, bucket_mb: 0}}",
                         "{rest: {params: '.*', strategy: allreduce, codec: {kind: fp16, scale: 1}}}",
                         "{tables: {params: 'source|target', strategy: unique, codec: {kind: bf16}}, "
                         "rest: {params: '.*', strategy: allreduce}}",
                         "{rest: {params: '.*', strategy: one_bit}}", "{all: {params: '.*', strategy: param_server}}"};
  int number = 0;
  for (const char* rule : rules) {
    Changes all = fp16;
    all.emplace_back("sync", rule);
    const auto scaled = train(str("scaled", number), all, 2);
    EXPECT_GT(scaled.at.loss_scale.overflows, 0) << rule;
    for (const float p : scaled.params) ASSERT_TRUE(std::isfinite(p)) << rule;
    all[0].second = "fp32";
    all[2].second = str(scaled.at.updates);  // with other batches, since batches of skipped updates are read as well
    const auto plain = train(str("plain", number++), all, 2);
    EXPECT_NEAR(scaled.at.valid_nll, plain.at.valid_nll, 0.15) << rule;
  }
}

TEST_F(Fp16, WrongScalesAreNamed) {
  const auto error = [&](const std::string& yaml) {
    return user_error([&] { read_recipe(recipe({{"loss_scale", yaml}}), "pairs"); });
  };
  EXPECT_THAT(error("{preset: ot}"), Names("loss_scale.preset", "ott", "puri"));
  EXPECT_THAT(error("{factor: 1}"), Names("loss_scale.factor", "above 1"));
  EXPECT_THAT(error("{init: 4, min: 8}"), Names("loss_scale.min", "8", "loss_scale.init"));
  EXPECT_THAT(error("{window: -1}"), Names("window"));
}

}  // namespace
}  // namespace lmx::app
