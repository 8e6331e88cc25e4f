// Activation checkpointing in a plan. The products that it computes again: CountedProducts.
#include <gmock/gmock.h>

#include "plan_command.h"

namespace lmx_test {
namespace {

class PlanRecomputation : public PlanCommand {
 protected:
  double planned_s(std::vector<std::string> more) const {
    more.insert(more.end(), {"--machine", "xiao_k40", "--ranks", "1"});
    const Json all = rows(path("tiny.yaml"), more);
    return all.at(0)["compute_s"];
  }
};

// Values that are computed again are also moved again, so checkpointing never makes a pass faster.
TEST_F(PlanRecomputation, CostsTimeInEachLimit) {
  for (const std::string limit : {"machine.device.peak_tflops.fp32=0.001", "machine.device.memory_gb_s=0.001"})
    EXPECT_GT(planned_s({limit, "model.checkpoint=true"}), 1.1 * planned_s({limit, "model.checkpoint=false"})) << limit;
}

}  // namespace
}  // namespace lmx_test
