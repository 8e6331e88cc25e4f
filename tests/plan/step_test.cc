// The schedule of a step: exchanges beside backward, one after the other, and the wait for the slowest rank.
#include "app/plan/step.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lmx_test {
namespace {

using namespace lmx::plan;

Work work_of(double forward, double backward, double update, int64_t passes = 1) {
  Work w;
  w.passes = passes;
  w.forward_s = forward;
  w.backward_s = backward;
  w.update_s = update;
  return w;
}

TEST(PlanStep, ExchangesWaitForTheirGradientsAndForEachOther) {
  const Work w = work_of(1, 2, 0.5);
  // Ready at 1.5, 1.6 and 3; the second waits for the first, the third begins when it is ready.
  const std::vector<UnitWork> units{{0.5, 0.3, 0.1}, {0.6, 0.2, 0}, {2, 0.7, 0}};
  const StepTime t = step_time(w, units, 4, {}, true);
  EXPECT_NEAR(t.comm_s, 1.3, 1e-12);
  EXPECT_NEAR(t.exposed_s, 0.7, 1e-12);
  EXPECT_NEAR(t.hidden_s(), 0.6, 1e-12);
  EXPECT_NEAR(t.step_s(), 3 + 0.7 + 0.5, 1e-12);
}

TEST(PlanStep, AQueueThatIsLongerThanBackwardIsExposed) {
  const std::vector<UnitWork> units{{0.5, 3, 0}, {2, 1, 0}};
  const StepTime t = step_time(work_of(1, 2, 0), units, 4, {}, true);
  EXPECT_NEAR(t.exposed_s, 1.5 + 3 + 1 - 3, 1e-12);
}

TEST(PlanStep, WithoutOverlapAllIsExposed) {
  const std::vector<UnitWork> units{{0.5, 0.3, 0}, {2, 0.2, 0}};
  const StepTime t = step_time(work_of(1, 2, 0), units, 4, {}, false);
  EXPECT_NEAR(t.exposed_s, 0.5, 1e-12);
  EXPECT_NEAR(t.hidden_s(), 0, 1e-12);
}

// A rank that shares its core: the exchange takes away what it needs, as far as backward is still running.
TEST(PlanStep, ExchangesThatNeedTheSameCoreDelayBackward) {
  // The first unit is within backward. Its 0.2 s put off the second gradient; that exchange is after backward.
  const std::vector<UnitWork> units{{0.5, 0.3, 0.1, 0, 0.2}, {2, 0.7, 0, 0, 0.5}};
  const StepTime t = step_time(work_of(1, 2, 0), units, 4, {}, true);
  EXPECT_NEAR(t.delay_s, 0.2, 1e-12);
  EXPECT_NEAR(t.compute_s, 3.2, 1e-12);
  EXPECT_NEAR(t.exposed_s, 0.7, 1e-12);
  // Half of an exchange from 2.5 to 3.5 s is beside backward.
  EXPECT_NEAR(step_time(work_of(1, 2, 0), {{1.5, 1, 0, 0, 0.4}}, 4, {}, true).delay_s, 0.2, 1e-12);
  EXPECT_EQ(step_time(work_of(1, 2, 0), units, 4, {}, false).delay_s, 0);
  // Own work of 0.6 s takes 1.2 s beside backward: 1 s of it until the end of backward, the last sixth alone.
  EXPECT_NEAR(step_time(work_of(1, 2, 0), {{1, 0, 0.6, 1, 0}}, 4, {}, true).exposed_s, 0.1, 1e-12);
}

TEST(PlanStep, OnlyTheLastBackwardHidesExchanges) {
  const std::vector<UnitWork> units{{0.5, 1, 0}};
  const StepTime t = step_time(work_of(1, 2, 0, 16), units, 4, {}, true);
  EXPECT_NEAR(t.compute_s, 48, 1e-12);
  EXPECT_NEAR(t.exposed_s, 0, 1e-12);
}

// Means of the largest of n standard normal values (Harter 1961, table 1).
TEST(PlanStep, TheSlowestRankFollowsOrderStatistics) {
  for (const auto& [n, mean] : {std::pair{2, 0.56419}, {3, 0.84628}, {10, 1.53875}, {100, 2.50759}})
    EXPECT_NEAR(Spread{0.2}.slowest(n, 1), 1 + 0.2 * mean, 2e-5) << n;
  EXPECT_EQ(Spread{0.2}.slowest(1, 1), 1);
  EXPECT_EQ(Spread{0}.slowest(100, 1), 1);
  // The sum of 16 passes varies a quarter as much, relative to its mean.
  EXPECT_NEAR(Spread{0.2}.slowest(10, 16), 1 + 0.05 * 1.53875, 1e-5);
}

TEST(PlanStep, WaitingIsPartOfTheComputation) {
  const StepTime t = step_time(work_of(1, 2, 0.5), {}, 10, Spread{0.2}, true);
  EXPECT_NEAR(t.wait_s, 3 * 0.2 * 1.53875, 1e-4);
  EXPECT_NEAR(t.compute_s, 3.5 + t.wait_s, 1e-12);
}

}  // namespace
}  // namespace lmx_test
