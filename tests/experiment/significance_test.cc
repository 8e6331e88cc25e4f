// The rule of verdicts: Student's t at 5 %, corrected by Holm's method.
#include <cmath>

#include "app/experiment/break_even.h"
#include "app/experiment/estimate.h"
#include "app/experiment/experiment.h"
#include "app/records/half_interval.h"
#include "lmx/error.h"
#include "test.h"

namespace lmx::app::experiment {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

// Holm's values of a known example: the p-values in ascending order times 4, 3, 2, 1, never less than the one before.
TEST(Holm, AdjustsAKnownExample) {
  std::vector<double> p{0.01, 0.04, 0.03, 0.005};
  adjust_by_holm(p);
  EXPECT_THAT(p, Pointwise(DoubleNear(1e-12), {0.03, 0.06, 0.06, 0.02}));
  std::vector<double> large{0.9, 0.8};
  adjust_by_holm(large);
  EXPECT_THAT(large, Pointwise(DoubleNear(1e-12), {1.0, 1.0}));
  std::vector<double> none;
  adjust_by_holm(none);
  EXPECT_TRUE(none.empty());
}

// A number that does not vary needs no correction, and takes nothing from the others.
TEST(Holm, DoesNotCountWhatDoesNotVary) {
  std::vector<double> p{0, 0.02, 0, 0.03};
  adjust_by_holm(p);
  EXPECT_THAT(p, Pointwise(DoubleNear(1e-12), {0.0, 0.04, 0.0, 0.04}));
}

// Critical values of a table of Student's t.
TEST(Student, HasTheTablesCriticalValues) {
  for (const auto& [freedom, t] : {std::pair{1.0, 12.7062}, {2.0, 4.30265}, {4.0, 2.77645}, {30.0, 2.04227}}) {
    EXPECT_NEAR(students_p(t, freedom), 0.05, 1e-6);
    EXPECT_NEAR(students_p(-t, freedom), 0.05, 1e-6);
  }
}

TTest tested(const std::vector<double>& runs, double bound) {
  std::vector<Sample> samples;
  for (const double run : runs) samples.push_back({0, run - bound});
  return test_of(estimate_of_mean(samples));
}

// The mean of 1, 2, 3 has the standard error 1 / sqrt(3).
TEST(TestOfMean, TwoStandardErrorsOfThreeRunsAreNotSignificant) {
  TTest two = tested({1, 2, 3}, 2 - 2 / std::sqrt(3)), clear = tested({1, 2, 3}, 2 - 4.31 / std::sqrt(3));
  EXPECT_NEAR(two.p, 0.1835, 1e-4);
  EXPECT_EQ(adjust({&two}), 1);
  EXPECT_EQ(two.standing(), Standing::open);
  EXPECT_EQ(adjust({&clear}), 1);
  EXPECT_EQ(clear.standing(), Standing::holds);
  EXPECT_EQ(adjust({&clear, &two}), 2);
  EXPECT_EQ(clear.standing(), Standing::open) << "significant alone, and not as one of two comparisons";
}

// With n runs, t is 2 sqrt(n / 3) with n - 1 degrees of freedom: p is 0.061 with 5 runs and 0.037 with 6.
TEST(TestOfMean, SaysHowManyRunsWouldDecide) {
  TTest two = tested({1, 2, 3}, 2 - 2 / std::sqrt(3)), equal = tested({1, 2, 3}, 2);
  adjust({&two});
  adjust({&equal});
  EXPECT_EQ(two.runs_needed(1), 6);
  two.adjusted = 2 * two.p;  // p is 0.022 with 7 runs
  EXPECT_EQ(two.runs_needed(9), 7);
  two.adjusted = 1;  // cut off, so the number of comparisons counts: p times 9 is 0.077 with 9 runs and 0.048 with 10
  EXPECT_EQ(two.runs_needed(9), 10);
  EXPECT_EQ(equal.runs_needed(1), 0);
  EXPECT_EQ(TTest{.p = 1}.runs_needed(1), 0);
  Estimate unknown;
  unknown.value = 1;
  unknown.error = NAN;
  unknown.runs = 3;
  EXPECT_EQ(test_of(unknown).p, 0) << "a spread that is not known";
  EXPECT_EQ(joined_test({two, {.p = 0.01}}).runs_needed(9), 10);
  EXPECT_EQ(joined_test({two, {.p = 0.01, .fails = true}}).runs, 0);
}

TEST(TestOfMean, EqualRunsAreCertain) {
  TTest above = tested({2, 2}, 1), below = tested({2, 2}, 3);
  EXPECT_EQ(adjust({&above, &below}), 0);
  EXPECT_EQ(above.standing(), Standing::holds);
  EXPECT_EQ(below.standing(), Standing::fails);
}

TEST(JoinedTest, HoldsIfAllPartsDoAndFailsByTheClearestPart) {
  const TTest holds = joined_test({{.p = 0.01}, {.p = 0.03}});
  EXPECT_FALSE(holds.fails);
  EXPECT_DOUBLE_EQ(holds.p, 0.03);
  const TTest fails = joined_test({{.p = 0.001}, {.p = 0.02, .fails = true}, {.p = 0.4, .fails = true}});
  EXPECT_TRUE(fails.fails);
  EXPECT_DOUBLE_EQ(fails.p, 3 * 0.02);
}

// At which bandwidth a method has a lower loss than the base in equal time.

using namespace lmx_test;
using Curve = std::vector<std::pair<double, double>>;
const std::vector<double> kOffsets{0.01, -0.02, 0.005, 0.012};  // of the seeds, equal for base and method

double loss(double part) {
  return 4 - 0.3 * std::log(part);
}
std::vector<Curve> base_runs() {
  std::vector<Curve> base;
  for (const double offset : kOffsets) {
    base.emplace_back();
    for (const double part : {0.1, 0.25, 0.5, 1.0}) base.back().emplace_back(part, loss(part) + offset);
  }
  return base;
}
// Losses of a method that has the base's loss after `part`, with a spread of its own.
std::vector<double> method_runs(double part, double spread) {
  std::vector<double> losses;
  for (size_t s = 0; s < kOffsets.size(); ++s)
    losses.push_back(loss(part) + kOffsets[s] + spread * (s % 2 == 0 ? 1 : -1));
  return losses;
}

TEST(BreakEven, FindsThePartOfEqualLoss) {
  const Between sharp = equal_part(base_runs(), method_runs(0.4, 0), 1);
  for (const double end : {sharp.low, sharp.value, sharp.high}) EXPECT_NEAR(end, 0.4, 0.004);
  const Between wide = equal_part(base_runs(), method_runs(0.4, 0.01), 1),
                wider = equal_part(base_runs(), method_runs(0.4, 0.01), 20);
  EXPECT_NEAR(wide.value, 0.4, 0.004);
  // t(0.975, 3) = 3.1824, the standard error 0.01 sqrt(4/3) / 2, and 0.3 nats for a factor of e.
  const double half = 3.1824 * 0.01 * std::sqrt(4.0 / 3) / 2 / 0.3;
  EXPECT_NEAR(std::log(0.4 / wide.low), half, 0.007);
  EXPECT_NEAR(std::log(wide.high / 0.4), half, 0.007);
  EXPECT_LT(wider.low, wide.low) << "more comparisons";
  EXPECT_GT(wider.high, wide.high);
}

TEST(BreakEven, SaysWhatWasNotMeasured) {
  const Between worst = equal_part(base_runs(), method_runs(0.02, 0.001), 1),
                best = equal_part(base_runs(), method_runs(2, 0.001), 1),
                alone = equal_part({base_runs()[0]}, {loss(0.4)}, 1);
  EXPECT_EQ(worst.value, 0);
  EXPECT_EQ(worst.low, 0);
  EXPECT_DOUBLE_EQ(worst.high, 0.1) << "the base is better after the least part";
  EXPECT_TRUE(std::isinf(best.value) && std::isinf(best.high));
  EXPECT_DOUBLE_EQ(best.low, 1);
  EXPECT_EQ(alone.low, 0) << "one seed decides nothing";
  EXPECT_TRUE(std::isinf(alone.high));
}

// With 1 s of computation, and 10 or 1 Gbit to send, the ratio of a step is (1 + 1/x) / (1 + 10/x).
TEST(BreakEven, FindsTheBandwidth) {
  StepCurve base, method;
  for (int i = 0; i <= 600; ++i) {
    const double x = 0.001 * std::pow(1e7, i / 600.0);
    base.emplace_back(x, 1 + 10 / x);
    method.emplace_back(x, 1 + 1 / x);
  }
  EXPECT_NEAR(bandwidth_of(method, base, 0.5), 8, 0.2);
  EXPECT_NEAR(bandwidth_of(method, base, 0.9), 80, 2);
  EXPECT_TRUE(std::isinf(bandwidth_of(method, base, 1)));
  EXPECT_EQ(bandwidth_of(method, base, 0.1), 0);
  EXPECT_EQ(bandwidth_of(method, base, 0), 0);
  EXPECT_EQ(bandwidth_of(base, base, 1), 0) << "nothing is saved";
}

constexpr const char* kFile = R"yaml(title: t
scales: {desk: {recipe: r.yaml}}
axes: {method: {a: [x=1], b: [x=2], half: [x=1]}, seed: [1, 2]}
measures: {nats: {key: nll_nat}}
break_even: {axis: method, base: a, shorter: {half: 0.5}, loss: nats, recipe: r.yaml, machine: h100_node, ranks: 16}
)yaml";

TEST(BreakEven, RefusesNamesThatDoNotExist) {
  const lmx_test::TempFolder folder;
  const auto read = [&](const std::string& from, const std::string& to) {
    std::string text = kFile;
    text.replace(text.rfind(from), from.size(), to);
    try {
      static_cast<void>(read_experiment(folder.write("e.yaml", text)));
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(read("base: a", "base: b"), "none");
  EXPECT_THAT(read("axis: method", "axis: methods"), HasSubstr("e.yaml:5:13: break_even.axis: there is no axis"));
  EXPECT_THAT(read("base: a", "base: c"), HasSubstr("break_even.base: there is no 'c'"));
  EXPECT_THAT(read("{half: 0.5}", "{hal: 0.5}"),
              HasSubstr("break_even.shorter: there is no 'hal' (did you mean 'half'?)"));
  EXPECT_THAT(read("{half: 0.5}", "{half: 2}"), HasSubstr("expected a part of the steps between 0 and 1, got '2'"));
  EXPECT_THAT(read("shorter: {half: 0.5}, ", ""), HasSubstr("expected value: part, such as {half: 0.5}"));
  EXPECT_THAT(read("loss: nats", "loss: nat"), HasSubstr("break_even.loss: there is no measure 'nat'"));
  const auto phases = [&](const std::string& text) { return read("ranks: 16", "ranks: 16, phases: " + text); };
  EXPECT_EQ(phases("{b: [{part: 0.2}, {part: 0.8, overrides: [x=3]}]}"), "none");
  EXPECT_THAT(phases("[{part: 1}]"), HasSubstr("break_even.phases: expected value: [{part, overrides}]"));
  EXPECT_THAT(phases("{c: [{part: 1}]}"), HasSubstr("break_even.phases: there is no 'c'"));
  EXPECT_THAT(phases("{b: [{part: 0.2}, {part: 0.7}]}"),
              HasSubstr("break_even.phases.b: the parts of its phases add up to 0.9, not to 1"));
  EXPECT_THAT(phases("{b: [{parts: 1}]}"), HasSubstr("did you mean 'part'?"));
}

}  // namespace

}  // namespace lmx::app::experiment
