// The memory of matrix products in a plan is that of the planned machine's processor.
#include <gmock/gmock.h>

#include "paths.h"
#include "plan_command.h"

namespace lmx_test {
namespace {

constexpr const char* kMachine = R"(
title: a machine
device:
  kind: KIND
  native_bf16: NATIVE
  memory_gb: 64
  memory_gb_s: 60
  peak_tflops: {fp32: 1, bf16: 1, fp16: 1}
  efficiency: {fp32: 1, bf16: 1, fp16: 1}
  half_size: 16
  launch_us: 1
links:
  ranks_per_node: 1
  node: {gb_s: 10, latency_us: 2}
  network: {gb_s: 1.25, latency_us: 30}
sources: {device: assumed, links: assumed}
)";

class PlanProducts : public PlanCommand {
 protected:
  PlanProducts() {
    for (const auto& [name, kind, native] :
         {std::tuple{"gpu", "gpu", "false"}, {"cpu", "cpu", "false"}, {"amx", "cpu", "true"}}) {
      std::string text = kMachine;
      text.replace(text.find("KIND"), 4, kind);
      text.replace(text.find("NATIVE"), 6, native);
      write(std::string(name) + ".yaml", text);
    }
  }
  // Planned bytes by class, on a processor that `variables` describe to lmx.
  Json memory(const std::string& machine, const std::string& precision,
              const std::map<std::string, std::string>& variables = {}) const {
    auto all = environment();
    all.insert(variables.begin(), variables.end());
    const Outcome o = run_process({build_path("/bin/lmx"), "plan", path("tiny.yaml"), "--machine",
                                   path(machine + ".yaml"), "precision=" + precision, "model.projection=0",
                                   "model.cells=1024", "batch.micro=0", "batch.global=128", "--json"},
                                  all);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out).at(0)["memory"] : Json::object();
  }
};

// An LSTM of 1,024 cells on inputs of size 12. The recurrent weight has a copy for forward and one for backward.
TEST_F(PlanProducts, CopiesOfWeightsHaveTheTypeThatTheProcessorMultiplies) {
  constexpr int64_t kRecurrent = 4 * 1024 * 1024;
  const auto parameters = [&](const char* machine, const char* precision) -> int64_t {
    return memory(machine, precision)["parameters"];
  };
  const int64_t values = parameters("gpu", "fp32");  // a GPU reads weights where they are
  EXPECT_EQ(parameters("cpu", "fp32"), values + 2 * 4 * kRecurrent);
  for (const char* precision : {"bf16", "fp16"}) EXPECT_EQ(parameters("cpu", precision), values + 2 * 4 * kRecurrent);
  EXPECT_EQ(parameters("amx", "bf16"), values + 2 * 2 * kRecurrent);
  EXPECT_EQ(memory("amx", "fp16"), memory("cpu", "fp16"));  // no CPU multiplies fp16
  // Widened operands of the products are activations.
  EXPECT_LT(memory("gpu", "bf16")["activations"], memory("amx", "bf16")["activations"]);
  EXPECT_LT(memory("amx", "bf16")["activations"], memory("cpu", "bf16")["activations"]);
}

TEST_F(PlanProducts, ThisProcessorDoesNotMatter) {
  for (const char* machine : {"gpu", "cpu", "amx"})
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      const Json here = memory(machine, precision);
      EXPECT_EQ(memory(machine, precision, {{"ONEDNN_MAX_CPU_ISA", "AVX2"}}), here) << machine << " " << precision;
      EXPECT_EQ(memory(machine, precision, {{"LMX_BF16", "fp32"}}), here) << machine << " " << precision;
    }
}

}  // namespace
}  // namespace lmx_test
