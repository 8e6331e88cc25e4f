// Short runs of each model, strategy and precision, against the records in records.jsonl: the losses of 20 steps, and
// the hash of the final parameters. Bits depend on the kind of CPU, so a case has one line for each kind; on a kind
// without a line, losses are compared with another kind's to a thousandth.
//
// LMX_GOLDEN_UPDATE=1 writes the lines of this kind of CPU (in one process); LMX_GOLDEN_AGAINST=BUILD compares with the
// lmx of another build folder instead of the records, to the bit. tools/golden does both.
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl_version.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "backend/cuda.h"
#include "base/files.h"
#include "golden/cases.h"
#include "lmx/error.h"
#include "lmx/matmul.h"
#include "paths.h"
#include "process/pairs_text.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The bits depend on the CPU, by whose instructions and caches oneDNN chooses its kernels, and on the compiler.
std::string cpu_kind() {
  std::ifstream info("/proc/cpuinfo");
  std::string model = "unknown";
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    model = line.substr(line.find(": ") + 2);
    break;
  }
  return lmx::str(lmx::cpu_isa(), ", ", model, ", g++ ", __GNUC__, '.', __GNUC_MINOR__, ", oneDNN ", DNNL_VERSION_MAJOR,
                  '.', DNNL_VERSION_MINOR);
}

// The hash of all tensors of a safetensors file. Its header is left out, because it contains the version.
std::string hash_of_values(const std::string& bytes) {
  uint64_t header = 0;
  if (bytes.size() < sizeof header) throw std::runtime_error("a run without parameters");
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto values = std::string_view(bytes).substr(sizeof header + header);
  return lmx::sha256_of_text(values).substr(0, 32);
}

struct Result {
  std::vector<double> losses, validation;
  std::string parameters;
  Json json(const std::string& name) const {
    return {{"case", name}, {"cpu", cpu_kind()}, {"parameters", parameters}, {"losses", losses}};
  }
};

class Golden : public RunTest, public testing::WithParamInterface<GoldenCase> {
 protected:
  Golden() {
    for (const char* recipe : {"words.yaml", "pairs.yaml"})
      write(recipe, read_file(fs::path(source_path("/tests/golden")) / recipe));
    write_pairs(folder_);
  }

  // The case, trained for so many steps by the lmx of a build folder on a device.
  Result train(const fs::path& build, const std::string& name, const std::string& device = "cpu",
               int64_t steps = 20) const {
    const GoldenCase& c = GetParam();
    std::vector<std::string> command{build / "bin/lmx", "run", path(c.recipe + ".yaml"), "run.dir=" + path(name),
                                     lmx::str("train.steps=", steps)};
    command.insert(command.end(), c.overrides.begin(), c.overrides.end());
    if (device != "cpu") command.push_back("device=" + device);
    if (c.recipe == "pairs") {
      command.push_back("data.source_files=[" + path("source.txt") + "]");
      command.push_back("data.target_files=[" + path("target.txt") + "]");
    }
    const Outcome o = run_process(command, environment());
    if (o.code != 0) throw std::runtime_error(o.err);
    Result result;
    std::istringstream lines(read_file(folder_ / name / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      if (record["split"] == "train") result.losses.push_back(record["nll_nat"]);
      if (record["split"] == "valid") result.validation.push_back(record["nll_nat"]);
    }
    result.parameters = hash_of_values(model(name, steps));
    return result;
  }
};

// The lines of the records, by case and kind of CPU.
using Records = std::map<std::pair<std::string, std::string>, Json>;

fs::path records_path() {
  return source_path("/tests/golden/records.jsonl");
}

Records recorded() {
  Records records;
  std::ifstream file(records_path());
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line);
    records[{record["case"].get<std::string>(), record["cpu"].get<std::string>()}] = record;
  }
  return records;
}

void write_record(const GoldenCase& c, const Result& result) {
  Records records = recorded();
  records[{c.name, cpu_kind()}] = result.json(c.name);
  std::ofstream file(records_path());
  for (const auto& [key, record] : records) file << record.dump() << '\n';
}

TEST_P(Golden, GivesTheRecordedResult) {
  const Result result = train(build_path(), "new");
  ASSERT_EQ(result.losses.size(), 20u);
  if (const char* other = std::getenv("LMX_GOLDEN_AGAINST")) {
    const Result old = train(other, "old");
    EXPECT_EQ(result.losses, old.losses) << "the first list is this build's";
    EXPECT_EQ(result.parameters, old.parameters);
    return;
  }
  if (std::getenv("LMX_GOLDEN_UPDATE")) return write_record(GetParam(), result);
  const std::string& name = GetParam().name;
  const Records records = recorded();
  const auto own = records.find({name, cpu_kind()}), other = records.lower_bound({name, ""});
  ASSERT_TRUE(other != records.end() && other->first.first == name) << "no record; tools/golden --update writes it";
  const bool same_kind = own != records.end(), same_bits = same_kind && LMX_RELEASE_BITS;
  const Json& line = same_kind ? own->second : other->second;
  const std::vector<double> losses = line["losses"];
  ASSERT_EQ(losses.size(), result.losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    if (same_bits) {
      EXPECT_EQ(result.losses[i], losses[i]) << "step " << i + 1;
    } else {
      EXPECT_NEAR(result.losses[i] / losses[i], 1, 1e-3) << "step " << i + 1 << ", recorded on " << line["cpu"];
    }
  }
  if (same_bits) {
    EXPECT_EQ(result.parameters, line["parameters"]);
  }
}

void expect_near(const std::vector<double>& device, const std::vector<double>& cpu, double tolerance) {
  ASSERT_EQ(device.size(), cpu.size());
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(device[i] / cpu[i], 1, tolerance) << "record " << i + 1;
}

TEST_P(Golden, TrainsOnACudaDevice) {
  if (lmx::load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  constexpr int64_t kSteps = 4;  // a wrong update of any part shows in the losses of the next ones
  const Result cpu = train(build_path(), "cpu", "cpu", kSteps),
               device = train(build_path(), "on_device", "cuda", kSteps);
  const std::string& name = GetParam().name;
  const double tolerance = name.ends_with("bf16") || name.ends_with("fp16") ? 1e-3 : 1e-5;
  expect_near(device.losses, cpu.losses, tolerance);
  expect_near(device.validation, cpu.validation, tolerance);
  if (!name.starts_with("lstm") && !name.starts_with("mlstm") && !name.starts_with("rhn")) return;
  setenv("LMX_CUDA_GRAPHS", "0", 1);
  const Result launched = train(build_path(), "launched", "cuda", kSteps);
  unsetenv("LMX_CUDA_GRAPHS");
  EXPECT_EQ(device.losses, launched.losses) << "the first list is with loops that are replayed as graphs";
  EXPECT_EQ(device.parameters, launched.parameters);
}

INSTANTIATE_TEST_SUITE_P(Runs, Golden, testing::ValuesIn(golden_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lmx_test
