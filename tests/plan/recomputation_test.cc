// Activation checkpointing in a plan, against the products that a run computes.
#include <gmock/gmock.h>

#include "plan_command.h"

namespace lmx_test {
namespace {

class PlanRecomputation : public PlanCommand {
 protected:
  // The products of the recurrent layer in all spans of a run of one step.
  int64_t counted_products(const std::string& dir, const std::string& more) const {
    const Outcome o = run(dir, {"train.steps=1", "train.eval_tokens=50", more, "--trace", path(dir + ".json")});
    EXPECT_EQ(o.code, 0) << o.err;
    int64_t products = 0;
    const Json trace = Json::parse(read_file(folder_ / (dir + ".json")));
    for (const Json& span : trace.at("traceEvents"))
      if (span["name"] == "sequence.recurrent_gemm" || span["name"] == "sequence.input_projection") ++products;
    return products;
  }
  double planned_s(std::vector<std::string> more) const {
    more.insert(more.end(), {"--machine", "xiao_k40", "--ranks", "1"});
    const Json all = rows(path("tiny.yaml"), more);
    return all.at(0)["compute_s"];
  }
};

// A launch takes a second, so the planned time counts launches: each product is followed by an element-wise part.
TEST_F(PlanRecomputation, AreTheProductsThatARunComputesAgain) {
  const int64_t again =
      counted_products("again", "model.checkpoint=true") - counted_products("kept", "model.checkpoint=false");
  // Two passes, each with the input projection once, and recurrent matrix and projection in each of 6 time steps.
  EXPECT_EQ(again, 2 * (1 + 2 * 6));
  const std::string slow = "machine.device.launch_us=1e6";
  const double planned = planned_s({slow, "model.checkpoint=true"}) - planned_s({slow, "model.checkpoint=false"});
  EXPECT_NEAR(planned, 2 * static_cast<double>(again), 1e-6 * planned);
}

// Values that are computed again are also moved again, so checkpointing never makes a pass faster.
TEST_F(PlanRecomputation, CostsTimeInEachLimit) {
  for (const std::string limit : {"machine.device.peak_tflops.fp32=0.001", "machine.device.memory_gb_s=0.001"})
    EXPECT_GT(planned_s({limit, "model.checkpoint=true"}), 1.1 * planned_s({limit, "model.checkpoint=false"})) << limit;
}

}  // namespace
}  // namespace lmx_test
