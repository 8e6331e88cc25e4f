// lmx devices, on the emulated device and without one.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "lmx/matmul.h"
#include "names.h"
#include "process/emulated.h"
#include "process/lmx_process.h"

namespace lmx_test {
namespace {

class DevicesCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(emulated_cuda())) GTEST_SKIP() << "this build has no emulated device";
  }
};

TEST_F(DevicesCommand, ListsTheCpuAndEachGpu) {
  const Outcome o = run_lmx({"devices"}, {{"LMX_CUDA_LIBRARY", emulated_cuda()}});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, Names("cpu     " + std::string(lmx::cpu_isa()),
                           "cuda:0  Emulated CUDA device, compute capability 9.0  8.6 GB  13.0"));
  const Outcome json = run_lmx({"devices", "--json"}, {{"LMX_CUDA_LIBRARY", emulated_cuda()}});
  const auto all = nlohmann::json::parse(json.out);
  ASSERT_EQ(all["devices"].size(), 2u);
  EXPECT_EQ(all["devices"][0]["device"], "cpu");
  const nlohmann::json gpu{{"device", "cuda:0"},
                           {"name", "Emulated CUDA device"},
                           {"compute_capability", "9.0"},
                           {"memory_bytes", int64_t{8} << 30},
                           {"driver", "13.0"},
                           {"runtime", "13.0"}};
  EXPECT_EQ(all["devices"][1], gpu);
  EXPECT_FALSE(all.contains("cuda_unavailable"));
}

TEST_F(DevicesCommand, SaysWhyThereIsNoGpu) {
  const std::map<std::string, std::string> old{{"LMX_CUDA_LIBRARY", emulated_cuda()}, {"LMX_EMULATED_ERROR", "driver"}};
  const Outcome o = run_lmx({"devices"}, old);
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.out, Names("no CUDA device: the driver of this machine supports CUDA up to 12.2"));
  const auto all = nlohmann::json::parse(run_lmx({"devices", "--json"}, old).out);
  EXPECT_EQ(all["devices"].size(), 1u);
  EXPECT_THAT(all["cuda_unavailable"].get<std::string>(), Names("CUDA up to 12.2"));
}

}  // namespace
}  // namespace lmx_test
