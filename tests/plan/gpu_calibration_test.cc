// `lmx plan --calibrate` on a GPU, the emulated device. Its values are times, so only their presence is tested.
#include <algorithm>

#include "app/calibration/timing.h"
#include "app/memory/counted.h"
#include "app/plan/work.h"
#include "plan_command.h"
#include "process/emulated.h"
#include "recipe/comm_config.h"
#include "train/fixture.h"

namespace lmx_test {
namespace {

using namespace lmx;
using namespace lmx::app::plan;

constexpr const char* kSecond = R"(
data: {name: parallel, corpus: none, vocab_size: 60, source_language: en, target_language: de}
batcher: {name: token_budget, max_tokens: 100}
batch: {global: 1}
model: {name: transformer, encoder_layers: 1, decoder_layers: 1, d: 24, ffn: 32, heads: 2}
loss: {name: full_softmax}
optimizer: {name: adam, lr: 0.01}
schedule: {name: constant}
sync: {all: {params: '.*', strategy: allreduce}}
comm: {name: self}
train: {steps: 2}
threads: 1
)";

class GpuCalibration : public PlanCommand {
 protected:
  void SetUp() override {
    if (!fs::exists(emulated_cuda())) GTEST_SKIP() << "this build has no emulated device";
    load_plugins();
    write("second.yaml", kSecond);
  }
  Outcome calibrate(Words more) const {
    more.insert(more.begin(), {build_path("/bin/lmx"), "plan", path("tiny.yaml")});
    auto all = environment();
    all["LMX_CUDA_LIBRARY"] = emulated_cuda();
    all["LMX_CUDA_POISON"] = "1";
    return run_process(more, all);
  }
  void expect_error(const Words& more, const Words& facts) const {
    EXPECT_THAT(calibrate(more), Refuses(NamesMatcher(facts)));
  }
};

// The recipe as a child of the command reads it.
Recipe recipe_of(const std::string& text, const std::string& name) {
  return read_recipe(parse_yaml(text, name), name);
}

TEST_F(GpuCalibration, TheFileHasAllThatPlansOfItsRecipesNeed) {
  ASSERT_THAT(calibrate({path("second.yaml"), "--calibrate", path("gpu.yaml"), "device=cuda", "precision=bf16"}),
              Succeeds());
  const Machine machine = read_machine(parse_yaml_file(path("gpu.yaml")));
  machine.check("gpu.yaml");
  const DeviceConfig& d = machine.device;
  EXPECT_EQ(d.name, "Emulated CUDA device");
  EXPECT_EQ(d.kind, "gpu");
  EXPECT_GT(d.memory_gb, 0);
  EXPECT_GT(d.launch_us, 0);
  EXPECT_TRUE(d.replays());
  d.require_products(DType::bf16);
  EXPECT_TRUE(d.exchanges.items.empty());
  EXPECT_EQ(d.beside, 0);
  const std::string tiny = std::string(kTinyRecipe) +
                           "comm: {name: self}\n"
                           "sync: {all: {params: '.*', strategy: allreduce}}\n";
  size_t shapes = 0;
  for (const std::string& text : {tiny, std::string(kSecond)}) {
    const Recipe recipe = recipe_of(text + "precision: bf16\n", "test");
    const lmx::app::Outline outline = lmx::app::outline_of(recipe, 1, 1);
    const lmx::app::RankCount count = lmx::app::count_rank(recipe, outline.batch, {.device = Device::Kind::cuda});
    for (const ProductShape& p : product_shapes(count, false)) {
      ++shapes;
      EXPECT_TRUE(std::any_of(d.products.items.begin(), d.products.items.end(),
                              [&](const Node& node) {
                                const auto measured = read_config<MeasuredProduct>(node, "product");
                                return measured.m == p.m && measured.n == p.n && measured.k == p.k && measured.us > 0 &&
                                       measured.precision == "bf16";
                              }))
          << p.m << ' ' << p.n << ' ' << p.k;
    }
    const auto pass =
        d.pass(pass_text(recipe), rules_text(recipe), outline.shares.forward_tokens, outline.shares.length);
    ASSERT_TRUE(pass) << text;
    EXPECT_GT(pass->forward_us, 0);
    EXPECT_GT(pass->backward_us, 0);
  }
  EXPECT_GT(shapes, 10u);
  // A plan takes the measured passes. With such a memory the update takes no time.
  Machine fast = machine;
  fast.device.memory_gb_s = 1e9;
  fast.device.replay_us = 1e-6;
  write("fast.yaml", to_yaml(write_config(fast)));
  const auto pass = read_config<MeasuredPass>(d.passes.items.at(1), "pass");
  const double seconds = 1e-6 * (pass.forward_us + pass.backward_us);
  const Json row = rows(path("second.yaml"), {"--machine", path("fast.yaml"), "precision=bf16"}).at(0);
  EXPECT_NEAR(row["step_s"].get<double>(), seconds, 1e-6 * seconds);
  EXPECT_THAT(plan(path("second.yaml"), {"--machine", path("fast.yaml")}).out, Not(HasSubstr("not calibrated")));
}

TEST_F(GpuCalibration, MeasuresOneGpu) {
  expect_error({"--calibrate", path("m.yaml"), "device=cuda,cpu"}, {"--calibrate", "cuda and cpu", "device"});
  if (LMX_HAS_GLOO)
    expect_error({"--calibrate", path("m.yaml"), "device=cuda", "comm.name=gloo", "comm.ranks=2"},
                 {"one GPU", "2 ranks", "comm=self"});
  EXPECT_FALSE(fs::exists(path("m.yaml")));
}

// Times of a calibration, which all ranks measure together.

TEST(PlanTiming, ThreeRanksOnOneCoreAndOneRankAloneAreAsFastAsTwoRanksOnEachOfTwoCores) {
  load_plugins();
  const Node config = parse_yaml("{name: virtual, ranks: 4}", "test.yaml");
  const auto group = make_comm_group(config, "comm", {1, {}});
  std::vector<double> seconds(4);
  group->run([&](Communicator& comm) {
    const double own = comm.rank() == 2 ? 1 : 3;
    seconds[static_cast<size_t>(comm.rank())] = lmx::app::calibration::seconds_of_mean_rate(comm, own);
  });
  for (const double s : seconds) EXPECT_NEAR(s, 2, 1e-12);
}

}  // namespace

}  // namespace lmx_test
