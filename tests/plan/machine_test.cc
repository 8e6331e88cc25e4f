// A machine's measured exchanges and products.
#include "app/plan/machine.h"
#include "plan_command.h"
#include "recipe/sync_rules.h"
#include "train/fixture.h"

namespace lmx_test {
namespace {

using namespace lmx::app::plan;

DeviceConfig device_of(const std::string& exchanges) {
  DeviceConfig device;
  device.memory_gb_s = 10;
  device.exchanges = lmx::parse_yaml(exchanges, "machine");
  device.read_measured("machine.device");
  return device;
}

TEST(PlanMachine, TheNearestExchangeOfTheStrategySetsTheRate) {
  const DeviceConfig device = device_of(
      "[{strategy: a, ranks: 4, moved: 1000, us: 10}, {strategy: a, ranks: 4, moved: 1000000, us: 2000},"
      " {strategy: a, ranks: 2, moved: 5000, us: 500}, {strategy: b, ranks: 4, moved: 1000, us: 7}]");
  EXPECT_NEAR(device.exchange_s("a", 4, 1000), 10e-6, 1e-15);
  EXPECT_NEAR(device.exchange_s("a", 4, 2000), 20e-6, 1e-15);
  EXPECT_NEAR(device.exchange_s("a", 4, 500'000), 1000e-6, 1e-12);
  EXPECT_NEAR(device.exchange_s("a", 2, 1000), 100e-6, 1e-15);  // as many ranks come first
  EXPECT_NEAR(device.exchange_s("a", 8, 5000), 500e-6, 1e-15);
  EXPECT_NEAR(device.exchange_s("c", 4, 1'000'000), 1e6 / 10e9, 1e-15);
  EXPECT_TRUE(device.measures_exchange("b"));
  EXPECT_FALSE(device.measures_exchange("c"));
}

// The text names every option, so that the exchanges of two codecs have different texts.
TEST(PlanMachine, AStrategyIsNamedWithItsOptions) {
  lmx::load_plugins();
  const auto text = [](const char* rules) {
    return strategy_text(lmx::full_sync_config(lmx::parse_yaml(rules, "rules"), "sync").entries[0].second);
  };
  const std::string plain = text("{r: {params: .*, strategy: unique}}");
  EXPECT_EQ(plain, text("{other: {params: ^a, strategy: unique, gather: unique}}"));
  EXPECT_NE(plain, text("{r: {params: .*, strategy: unique, gather: raw}}"));
  EXPECT_NE(plain, text("{r: {params: .*, strategy: unique, codec: {kind: fp16}}}"));
  EXPECT_TRUE(plain.starts_with("unique ")) << plain;
}

TEST(PlanMachine, SomeCoresHaveTheirShareOfTheRates) {
  DeviceConfig device = device_of("[]");
  device.peak_tflops.fp32 = 1;
  device.efficiency.fp32 = 1;
  const double all = device.product_s(100, 100, 100, lmx::DType::f32);
  device.use_cores(2);  // their number is not stated
  EXPECT_EQ(device.product_s(100, 100, 100, lmx::DType::f32), all);
  device.cores = 8;
  device.use_cores(16);
  EXPECT_EQ(device.product_s(100, 100, 100, lmx::DType::f32), all);
  device.use_cores(2);
  EXPECT_NEAR(device.product_s(100, 100, 100, lmx::DType::f32), 4 * all, 1e-12);
  EXPECT_NEAR(device.memory_s(10e9), 4, 1e-12);  // 2.5 of 10 GB/s
  device.core_gb_s = 2;                          // more than its share of 1.25
  device.use_cores(1);
  EXPECT_NEAR(device.memory_s(10e9), 5, 1e-12);
}

// A processor has one efficiency for each precision, in whatever file it is defined.
TEST(PlanMachine, EqualDevicesReachTheSame) {
  std::map<std::string, std::map<std::string, std::string>> devices;  // name -> key -> value
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("/recipes/machine"))) {
    const lmx::Node tree = lmx::parse_yaml_file(entry.path().string());
    const lmx::Node* device = tree.find("device");
    if (!device) continue;  // it takes another file's
    ++files;
    const std::string name = device->find("name")->text;
    for (const char* key : {"efficiency", "half_size", "launch_us", "memory_gb", "memory_gb_s"}) {
      const std::string value = lmx::to_yaml(*device->find(key));
      const auto [known, fresh] = devices[name].try_emplace(key, value);
      EXPECT_EQ(known->second, value) << entry.path() << ": " << name << ", " << key;
    }
  }
  EXPECT_GT(files, devices.size()) << "no two files have the same device";
}

TEST(PlanMachine, ExchangesAreCheckedWhenTheyAreRead) {
  EXPECT_THROW(device_of("[{strategy: a, ranks: 0, moved: 1, us: 1}]"), lmx::UserError);
  EXPECT_THROW(device_of("[{strategy: a, ranks: 2, moved: 1, seconds: 1}]"), lmx::UserError);
}

// The memory of matrix products in a plan is that of the planned machine's processor.

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
    EXPECT_THAT(o, Succeeds());
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
