// Times of a calibration, which all ranks measure together.
#include "app/calibration/timing.h"

#include <gtest/gtest.h>

#include <vector>

#include "recipe/comm_config.h"
#include "train/fixture.h"

namespace lmx_test {
namespace {

using namespace lmx;

TEST(PlanTiming, ThreeRanksOnOneCoreAndOneRankAloneAreAsFastAsTwoRanksOnEachOfTwoCores) {
  train::load_plugins();
  const Node config = parse_yaml("{name: virtual, ranks: 4}", "test.yaml");
  const auto group = train::make_comm_group(config, "comm", {1, {}});
  std::vector<double> seconds(4);
  group->run([&](Communicator& comm) {
    const double own = comm.rank() == 2 ? 1 : 3;
    seconds[static_cast<size_t>(comm.rank())] = plan::seconds_of_mean_rate(comm, own);
  });
  for (const double s : seconds) EXPECT_NEAR(s, 2, 1e-12);
}

}  // namespace
}  // namespace lmx_test
