// Learning rates step by step against their formulas; rules; what a wrong `schedule:` says.
#include "schedule/schedule.h"
#include "test.h"
#include "yaml.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace lmx {
namespace {

using lmx_test::yaml;

std::unique_ptr<Schedule> schedule(const std::string& text, double base) {
  return make_schedule(yaml(text), "schedule", base);
}

double rate(const Schedule& s, int64_t step, int64_t per_epoch = 10, int64_t total = 100) {
  return s.rate({step, step / per_epoch, total});
}

std::string message(const std::string& text) {
  return lmx_test::user_error([&] { make_schedule(yaml(text), "schedule", 1); });
}

TEST(Schedule, ConstantAndTheDefault) {
  for (const int64_t t : {int64_t{0}, int64_t{7}, int64_t{1} << 40})
    EXPECT_EQ(rate(*schedule("name: constant", 0.3), t), 0.3);
  EXPECT_EQ(rate(*make_schedule(Node(), "schedule", 0.3), 5), 0.3);
  EXPECT_EQ(full_schedule_config(Node(), "schedule").at_path("name")->text, "constant");
}

TEST(Schedule, ConstantRisesOverItsWarmUp) {
  const auto s = schedule("{name: constant, warmup: 4}", 0.2);
  const std::vector<double> expected{0.05, 0.1, 0.15, 0.2, 0.2, 0.2};
  for (size_t t = 0; t < expected.size(); ++t) EXPECT_DOUBLE_EQ(rate(*s, static_cast<int64_t>(t)), expected[t]) << t;
}

TEST(Schedule, WsdWarmsUpIsStableAndDecays) {
  const auto s = schedule("{name: wsd, warmup: 2, decay: 4, min_lr: 0.2}", 1);
  const std::vector<double> expected{0.5, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2};
  for (size_t t = 0; t < expected.size(); ++t)
    EXPECT_DOUBLE_EQ(s->rate({static_cast<int64_t>(t), 0, 10}), expected[t]) << t;
  const auto root = schedule("{name: wsd, decay: 4, shape: sqrt}", 2);
  EXPECT_DOUBLE_EQ(root->rate({6, 0, 10}), 2);
  EXPECT_DOUBLE_EQ(root->rate({7, 0, 10}), 2 * (1 - 0.5));
  EXPECT_DOUBLE_EQ(root->rate({9, 0, 10}), 2 * (1 - std::sqrt(0.75)));
  EXPECT_EQ(root->rate({10, 0, 10}), 0);
}

TEST(Schedule, WsdDecaysOverAFractionOfAllUpdates) {
  const auto part = schedule("{name: wsd, decay: 0.3}", 1), updates = schedule("{name: wsd, decay: 30}", 1),
             own = schedule("{name: wsd, decay: 0.3, steps: 100}", 1);
  for (const int64_t t : {0, 69, 70, 71, 99, 100, 200}) {
    EXPECT_EQ(part->rate({t, 0, 100}), updates->rate({t, 0, 100})) << t;
    EXPECT_EQ(part->rate({t, 0, 100}), own->rate({t, 0, 7})) << t;
  }
  EXPECT_DOUBLE_EQ(part->rate({85, 0, 100}), 0.5);
  EXPECT_EQ(schedule("{name: wsd, decay: 0}", 1)->rate({99, 0, 100}), 1);
  // A run that is shorter than warm-up and decay together: the decay goes first.
  const auto shorter = schedule("{name: wsd, warmup: 50, decay: 0.5}", 1);
  EXPECT_DOUBLE_EQ(shorter->rate({9, 0, 20}), 0.2);
  EXPECT_DOUBLE_EQ(shorter->rate({10, 0, 20}), 1);
}

// Runs of several lengths have equal rates up to the decay of the shorter one, so one run is the trunk of the others.
TEST(Schedule, WsdOfSeveralLengthsHasACommonBeginning) {
  const auto s = schedule("{name: wsd, warmup: 10, decay: 20}", 1);
  for (int64_t t = 0; t < 80; ++t) EXPECT_EQ(s->rate({t, 0, 100}), s->rate({t, 0, 1000})) << t;
  EXPECT_NE(s->rate({81, 0, 100}), s->rate({81, 0, 1000}));
}

TEST(Schedule, LinearReachesZeroWhereverTrainingStops) {
  const auto s = schedule("{name: linear, steps: 8, warmup: 3}", 2);
  const std::vector<double> expected{2.0 / 3, 4.0 / 3, 2, 2, 1.6, 1.2, 0.8, 0.4, 0, 0};
  for (size_t t = 0; t < expected.size(); ++t) {
    EXPECT_DOUBLE_EQ(s->rate({static_cast<int64_t>(t), 0, 5}), expected[t]) << t;
    EXPECT_DOUBLE_EQ(s->rate({static_cast<int64_t>(t), 0, 50000}), expected[t]) << t;
  }
  const auto puri = schedule("{name: linear, steps: 100_000}", 3e-3);
  EXPECT_DOUBLE_EQ(rate(*puri, 0), 3e-3);
  EXPECT_DOUBLE_EQ(rate(*puri, 73'000), 3e-3 * 0.27);
  EXPECT_EQ(rate(*puri, 100'000), 0);
  EXPECT_DOUBLE_EQ(rate(*schedule("name: linear", 1), 25, 10, 100), 0.75);  // steps: train.steps
}

TEST(Schedule, InverseSqrtIsOttsPeakAfterWarmup) {
  const auto s = schedule("{name: inverse_sqrt, warmup: 4000, start_lr: 1e-7}", 5e-4);
  EXPECT_DOUBLE_EQ(rate(*s, 0), 1e-7);
  for (const int64_t t : {1, 1999, 3999}) {
    EXPECT_DOUBLE_EQ(rate(*s, t), 1e-7 + static_cast<double>(t) * (5e-4 - 1e-7) / 4000) << t;
  }
  for (const int64_t t : {4000, 4001, 16000, 100000}) {
    EXPECT_DOUBLE_EQ(rate(*s, t), 5e-4 * std::sqrt(4000.0 / static_cast<double>(t))) << t;
  }
  EXPECT_DOUBLE_EQ(rate(*s, 16000), 2.5e-4);
}

TEST(Schedule, CosineFromBaseToMinimum) {
  const auto s = schedule("{name: cosine, steps: 12, warmup: 2, min_lr: 0.1}", 1);
  EXPECT_DOUBLE_EQ(rate(*s, 0), 0.5);
  EXPECT_DOUBLE_EQ(rate(*s, 1), 1);
  for (int64_t t = 2; t < 12; ++t) {
    EXPECT_DOUBLE_EQ(rate(*s, t), 0.1 + 0.9 * (1 + std::cos(std::numbers::pi * static_cast<double>(t - 2) / 10)) / 2)
        << t;
  }
  EXPECT_DOUBLE_EQ(rate(*s, 7), 0.55);
  EXPECT_DOUBLE_EQ(rate(*s, 12), 0.1);
  EXPECT_DOUBLE_EQ(rate(*s, 1000), 0.1);
}

TEST(Schedule, EpochDecayStepsAtEpochs) {
  const auto s = schedule("{name: epoch_decay, factor: 0.9}", 0.2);
  for (int64_t t = 0; t < 40; ++t) EXPECT_DOUBLE_EQ(rate(*s, t), 0.2 * std::pow(0.9, static_cast<double>(t / 10))) << t;
}

TEST(Schedule, HalveOnRiseFollowsValidation) {
  const auto s = schedule("name: halve_on_rise", 0.7);
  std::vector<double> rates;
  for (const double ppl : {120.0, 110.0, 111.0, 111.0, 105.0, 106.0, 107.0}) {
    s->validated(ppl);
    rates.push_back(rate(*s, 0));
  }
  EXPECT_EQ(rates, (std::vector<double>{0.7, 0.7, 0.35, 0.35, 0.35, 0.175, 0.0875}));
  const auto resumed = schedule("name: halve_on_rise", 0.7);
  resumed->load(s->state());
  EXPECT_EQ(rate(*resumed, 0), 0.0875);
  resumed->validated(107.5);  // it also remembers the last perplexity
  EXPECT_EQ(rate(*resumed, 0), 0.04375);
  resumed->validated(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(rate(*resumed, 0), 0.021875);
}

TEST(Schedule, PatienceLetsRisesPass) {
  const auto s = schedule("{name: halve_on_rise, factor: 0.1, patience: 1}", 1);
  std::vector<double> rates;
  for (const double ppl : {10.0, 11.0, 9.0, 10.0, 11.0, 12.0}) {
    s->validated(ppl);
    rates.push_back(rate(*s, 0));
  }
  EXPECT_EQ(rates, (std::vector<double>{1, 1, 1, 1, 0.1, 0.1}));
}

TEST(Schedule, OnlyHalveOnRiseHasState) {
  for (const char* name : {"constant", "linear", "inverse_sqrt", "epoch_decay", "cosine"}) {
    const auto s = schedule(std::string("name: ") + name, 1);
    const double before = rate(*s, 3);
    s->validated(1e9);
    EXPECT_EQ(rate(*s, 3), before) << name;
    EXPECT_TRUE(s->state().empty()) << name;
    EXPECT_NO_THROW(s->load({})) << name;
    EXPECT_THROW(s->load({1.0}), UserError) << name;
  }
  EXPECT_THROW(schedule("name: halve_on_rise", 1)->load({1.0}), UserError);
}

TEST(Schedule, FullConfigHasEveryDefaultNameFirst) {
  EXPECT_EQ(to_yaml(full_schedule_config(yaml("{warmup: 5, name: linear}"), "schedule")),
            "name: linear\nsteps: 0\nwarmup: 5\n");
}

TEST(Schedule, Errors) {
  EXPECT_EQ(message("name: cosin"),
            "r.yaml:1:7: schedule.name: expected one of constant, linear, inverse_sqrt, epoch_decay, halve_on_rise, "
            "cosine, wsd, "
            "got 'cosin' (did you mean 'cosine'?)");
  EXPECT_EQ(message("{name: linear, warmpu: 3}"), "r.yaml:1:16: unknown key schedule.warmpu (did you mean 'warmup'?)");
  EXPECT_EQ(message("{name: linear, steps: 5, warmup: 5}"),
            "r.yaml:1:34: schedule.warmup: 5 steps of warm-up leave none of schedule.steps = 5");
  EXPECT_EQ(message("{name: epoch_decay, factor: 0}"), "r.yaml:1:29: schedule.factor: must be in (0, 1], got 0");
  EXPECT_EQ(message("{name: inverse_sqrt, warmup: 0}"), "r.yaml:1:30: schedule.warmup: must be >= 1, got 0");
  EXPECT_EQ(message("{name: constant, lr: 3}"), "r.yaml:1:18: unknown key schedule.lr (allowed: warmup)");
  EXPECT_EQ(message("{name: wsd, decay: 1.5}"),
            "r.yaml:1:20: schedule.decay: expected a number of updates, or a fraction below 1, got 1.5");
  EXPECT_EQ(message("{name: wsd, steps: 10, warmup: 6, decay: 0.5}"),
            "r.yaml:1:42: schedule.decay: a warm-up of 6 updates and a decay of 5 are more than schedule.steps = 10");
  EXPECT_EQ(message("{name: wsd, shape: cosine}").substr(0, 36), "r.yaml:1:20: schedule.shape: expecte");
  EXPECT_EQ(message("[linear]"), "r.yaml:1:1: schedule: expected a map with a `name`, got a list");
}

LrRule rule(const std::string& text) {
  return read_config<LrRule>(yaml(text), "lr_rule");
}

TEST(LrRule, Factors) {
  EXPECT_EQ(rule("{}").factor(4096, 64), 1);
  EXPECT_EQ(rule("{name: linear, reference_batch: 256}").factor(1024, 1), 4);
  EXPECT_EQ(rule("{name: sqrt, reference_batch: 256}").factor(1024, 1), 2);
}

// Patwary 2018, sections IV-B and V-A: 0.2 ln(nodes), at least 0.2 unless strict.
TEST(LrRule, LogNodesOfPatwary) {
  const LrRule bounded = rule("name: log_nodes"), strict = rule("{name: log_nodes, strict: true}");
  EXPECT_EQ(strict.factor(0, 8), 0);
  EXPECT_NEAR(0.2 * strict.factor(0, 16), 0.1386, 5e-5);
  EXPECT_NEAR(0.2 * strict.factor(0, 64), 0.4159, 5e-5);
  EXPECT_EQ(bounded.factor(0, 8), 1);
  EXPECT_EQ(bounded.factor(0, 16), 1);
  EXPECT_NEAR(0.2 * bounded.factor(0, 24), 0.2197, 5e-5);
  EXPECT_NEAR(1e-3 * bounded.factor(0, 64), 2.079e-3, 5e-7);
  EXPECT_EQ(bounded.factor(0, 1), 1);  // less than a node is one node
}

TEST(LrRule, Errors) {
  EXPECT_THROW(rule("name: linear").factor(64, 1), UserError);
  EXPECT_THROW(rule("name: log_node"), UserError);
}

}  // namespace
}  // namespace lmx
