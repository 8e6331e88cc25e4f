// A request that is planned at several speeds, and the steps of ranks that one computer computes in turn.
#include <gmock/gmock.h>

#include "app/plan/plan.h"
#include "paths.h"
#include "plan_command.h"
#include "train/fixture.h"

namespace lmx_test {
namespace {

using namespace lmx::plan;

class PlannerOfARequest : public PlanCommand {
 protected:
  PlannerOfARequest() {
    lmx::train::load_plugins();
    write("tiny.yaml",
          std::string(kTinyRecipe) + "comm: {name: self}\nsync: {rest: {params: '.*', strategy: allreduce}}\n");
  }
  Request request(std::vector<std::string> overrides = {}) const {
    Request r;
    r.recipe = path("tiny.yaml");
    r.machine = source_path("/recipes/machine/desk_10gbe.yaml");
    r.compose.overrides = std::move(overrides);
    r.ranks = {1, 2, 4};
    return r;
  }
};

TEST_F(PlannerOfARequest, BuildsEachCaseOnce) {
  Planner planner(request());
  const double speed = planner.speed_of({2, 0.25});
  const Plan plan = planner.plan(speed);
  EXPECT_EQ(planner.built(), 3u);
  EXPECT_NEAR(plan.rows[1].time.step_s(), 0.25, 1e-9);
  Request anchored = request();
  anchored.anchor = Anchor{2, 0.25};
  const Plan other = make_plan(anchored);
  EXPECT_EQ(other.rows[0].speed, speed);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(other.rows[i].time.step_s(), plan.rows[i].time.step_s());
  EXPECT_TRUE(planner.rows(1).curves.empty());
  EXPECT_FALSE(plan.curves.empty());
}

// Without a network the ranks in turn take their passes and exchanges one after the other, and one update.
TEST_F(PlannerOfARequest, RanksInTurnTakeTheSumOfTheirPasses) {
  const Plan plan = Planner(request()).rows(1);
  const auto& one = plan.rows[0];
  EXPECT_NEAR(one.in_turn_s, one.time.compute_s, 1e-12);
  EXPECT_GT(plan.rows[2].in_turn_s, 3 * plan.rows[2].time.compute_s);
  EXPECT_LT(plan.rows[2].in_turn_s, 4 * (plan.rows[2].time.compute_s + plan.rows[2].time.comm_s));
  Request one_core = request();
  one_core.cores = 1;
  EXPECT_GT(Planner(one_core).rows(1).rows[0].in_turn_s, one.in_turn_s);  // most of it is the start of ops
}

}  // namespace
}  // namespace lmx_test
