// The parts of a step on a GPU: products by shape, kernels of replayed loops, kernels that the host starts.
#include <algorithm>
#include <tuple>

#include "app/calibration/calibrate.h"
#include "app/memory/counted.h"
#include "app/plan/work.h"
#include "plan_command.h"
#include "recipe/recipe.h"
#include "train/fixture.h"

namespace lmx_test {
namespace {

using namespace lmx;
using namespace lmx::app::plan;

// A device whose arithmetic and memory take almost no time.
DeviceConfig fast_device() {
  DeviceConfig device;
  device.memory_gb_s = 1e9;
  device.peak_tflops = {1e9, 1e9, 1e9};
  device.efficiency = {1, 1, 1};
  return device;
}

Recipe tiny() {
  load_plugins();
  const std::string text = std::string(kTinyRecipe) +
                           "comm: {name: self}\nprecision: bf16\nsync: {all: {params: '.*', strategy: allreduce}}\n";
  return read_recipe(parse_yaml(text, "tiny"), "tiny");
}

class PlanGpuWork : public testing::Test {
 protected:
  static constexpr int64_t kSteps = 6, kCells = 16;

  lmx::app::RankCount count(Device::Kind kind) const {
    return lmx::app::count_rank(recipe_, outline_.batch, {.device = kind});
  }
  Work work(const DeviceConfig& device) const {
    return work_of(recipe_, outline_.network, outline_.shares, count(Device::Kind::cuda), device);
  }
  // A number of the entries of a pass, in total.
  static double all_of(const CountedPass& pass, int64_t CountedWork::*part) {
    double all = 0;
    for (const auto* works : {&pass.forward, &pass.backward})
      for (const CountedWork& w : *works) all += static_cast<double>(w.*part);
    return all;
  }

  Recipe recipe_ = tiny();
  lmx::app::Outline outline_ = lmx::app::outline_of(recipe_, 1, 1);
};

// A time step has at least a product and a cell in each direction, and a product with the projection.
TEST_F(PlanGpuWork, LoopsAreCountedWhereTheDeviceReplaysThem) {
  const CountedPass gpu = count(Device::Kind::cuda).pass, cpu = count(Device::Kind::cpu).pass;
  EXPECT_EQ(all_of(cpu, &CountedWork::in_loops), 0);
  EXPECT_GE(all_of(gpu, &CountedWork::in_loops), 2 * 3 * kSteps);
  EXPECT_LT(all_of(gpu, &CountedWork::in_loops), all_of(gpu, &CountedWork::kernels) - 10);
}

// The gradients of the cells' outputs, in the type of products, are in the same memory at each time step.
TEST_F(PlanGpuWork, ReusedOutputsOfALoopAreReadAgain) {
  EXPECT_EQ(all_of(count(Device::Kind::cuda).pass, &CountedWork::rewritten),
            (kSteps - 1) * recipe_.batch.micro * kCells * size_of(DType::bf16));
}

TEST_F(PlanGpuWork, KernelsTakeTheLongerTimeOfDeviceAndHost) {
  const lmx::app::RankCount count = this->count(Device::Kind::cuda);
  double products = 0;
  for (const auto* works : {&count.pass.forward, &count.pass.backward})
    for (const CountedWork& w : *works) products += w.m > 0 ? static_cast<double>(w.times) : 0;
  const double kernels = all_of(count.pass, &CountedWork::kernels), moves = all_of(count.pass, &CountedWork::transfers),
               in_loops = all_of(count.pass, &CountedWork::in_loops);
  DeviceConfig device = fast_device();
  device.replay_us = 1000;
  device.launch_us = 1;
  const Work slow_device = work(device);
  EXPECT_NEAR(slow_device.forward_s + slow_device.backward_s, 1e-3 * (kernels + moves - products), 1e-6);
  device.launch_us = 100'000;
  const Work slow_host = work(device);
  EXPECT_NEAR(slow_host.forward_s + slow_host.backward_s, 0.1 * (kernels + moves - in_loops), 1e-6);
  EXPECT_NEAR(slow_host.forward_s / slow_host.backward_s, slow_device.forward_s / slow_device.backward_s, 1e-9);
  // Without graphs the device waits for each launch.
  device.replay_us = 0;
  const Work eager = work(device);
  EXPECT_NEAR(eager.forward_s + eager.backward_s, 0.1 * kernels, 1e-6);
}

TEST_F(PlanGpuWork, AProductHasAFixedTimeUnlessAnotherKernelComputesIt) {
  DeviceConfig device = fast_device();
  device.product_us = 5;
  EXPECT_NEAR(device.product_s(8, 8, 8, DType::bf16), 5e-6, 1e-12);
  EXPECT_NEAR(device.product_s(8, 8, 8, DType::bf16, true), 0, 1e-12);
  device.products = parse_yaml("[{m: 8, n: 8, k: 8, precision: bf16, us: 7}]", "machine");
  device.read_measured("machine.device");
  EXPECT_NEAR(device.product_s(8, 8, 8, DType::bf16), 7e-6, 1e-15);
}

// Attention computes its products in one kernel.
TEST_F(PlanGpuWork, ProductsWithinKernelsAreNoProductsToMeasure) {
  const Recipe recipe = read_recipe(
      parse_yaml("data: {name: synthetic, vocab_size: 60, train_tokens: 3000}\n"
                 "batcher: {name: random_windows, sequence_length: 7}\nbatch: {global: 8}\n"
                 "model: {name: transformer, encoder_layers: 0, decoder_layers: 1, d: 24, ffn: 32, heads: 2}\n"
                 "loss: {name: full_softmax}\noptimizer: {name: adam, lr: 0.1}\nschedule: {name: constant}\n"
                 "sync: {all: {params: '.*', strategy: allreduce}}\ntrain: {steps: 2}\nthreads: 1\n",
                 "attention"),
      "attention");
  const lmx::app::RankCount count =
      lmx::app::count_rank(recipe, lmx::app::outline_of(recipe, 1, 1).batch, {.device = Device::Kind::cuda});
  const auto of_heads = [&](bool within) {
    const std::vector<ProductShape> shapes = product_shapes(count, within);
    return std::count_if(shapes.begin(), shapes.end(), [](const ProductShape& p) { return p.k == 24 / 2; });
  };
  EXPECT_GT(of_heads(true), 0);
  EXPECT_EQ(of_heads(false), 0);
}

// The constants of the formula follow from products that it has computed.
TEST(PlanProductCurve, TheCurveOfAGpuFollowsItsProducts) {
  DeviceConfig truth;
  truth.memory_gb_s = 3000;
  truth.product_us = 4;
  truth.peak_tflops.bf16 = 600;
  truth.efficiency.bf16 = 1;
  std::vector<MeasuredProduct> products;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{128, 3584, 1792},
                                {128, 4096, 4096},
                                {128, 8192, 512},
                                {8192, 8192, 8192},
                                {4096, 8192, 16384},
                                {16384, 4096, 4096}})
    products.push_back({m, n, k, "bf16", 1e6 * truth.product_s(m, n, k, DType::bf16)});
  DeviceConfig device;
  device.memory_gb_s = 3000;
  lmx::app::calibration::fit_products(device, products, DType::bf16);
  EXPECT_NEAR(device.product_us, 4, 1e-9);
  EXPECT_NEAR(device.peak_tflops.bf16, 600, 1e-6);
  EXPECT_NEAR(device.half_size, 0, 1e-6);
  EXPECT_EQ(device.efficiency.bf16, 1);
  device.kind = "cpu";
  device.product_us = 0;
  lmx::app::calibration::fit_products(device, products, DType::bf16);
  EXPECT_EQ(device.product_us, 0);
  EXPECT_GT(device.half_size, 50);  // a CPU's curve explains the products of few rows
}

}  // namespace
}  // namespace lmx_test
