// The rule of verdicts: Student's t at 5 %, corrected by Holm's method.
#include <gmock/gmock.h>

#include "app/experiment/estimate.h"
#include "app/records/half_interval.h"

namespace lmx_cli::experiments {
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

}  // namespace
}  // namespace lmx_cli::experiments
