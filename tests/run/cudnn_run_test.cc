// lmx run with cuDNN on the emulated device, whose cuDNN is a reference (tests/cuda_emulator/cudnn): long sequences,
// the records, and the messages if cuDNN is missing.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "names.h"
#include "paths.h"
#include "patterns.h"
#include "process/emulated.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// A language model whose sequences are longer than 512 tokens.
constexpr const char* kLongRecipe = R"(
data: {name: synthetic, vocab_size: 60, train_tokens: 10000, valid_tokens: 1300, test_tokens: 200, branching: 8, classes: 6}
batcher: {name: tbptt, sequence_length: 600}
batch: {global: 3}
model: {name: transformer, encoder_layers: 0, decoder_layers: 2, d: 16, ffn: 32, heads: 2, dropout: 0}
loss: {name: full_softmax}
optimizer: {name: adam, lr: 0.01}
precision: bf16
train: {steps: 3, log_every: 1}
threads: 1
)";

class CudnnRun : public RunTest {
 protected:
  void SetUp() override {
    if (!fs::exists(emulated_cuda())) GTEST_SKIP() << "this build has no emulated device";
    write("tiny.yaml", kLongRecipe);
  }
  Outcome run_with(const std::string& dir, const std::string& device,
                   const std::map<std::string, std::string>& variables = {}) const {
    return run_process(command(dir, {"device=" + device}), with(variables));
  }
  std::map<std::string, std::string> with(const std::map<std::string, std::string>& variables) const {
    auto all = environment();
    all["LMX_CUDA_LIBRARY"] = emulated_cuda();
    all["LMX_CUDA_POISON"] = "1";
    all["LD_LIBRARY_PATH"] = build_path("/lib");  // of device_without_cudnn()
    for (const auto& [name, value] : variables) all[name] = value;
    return all;
  }
  std::vector<double> losses(const std::string& dir) const {
    std::vector<double> all;
    std::ifstream file(folder_ / dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record["split"] == "train") all.push_back(record["nll_nat"]);
    }
    return all;
  }
  nlohmann::json start_of(const std::string& dir) const {
    return nlohmann::json::parse(read_file(folder_ / dir / "provenance.json"))["starts"][0];
  }
  // Another name of the emulated device, without a cuDNN beside it.
  std::string device_without_cudnn() const {
    const fs::path there = folder_ / "libs" / "liblmx_cuda_emulated.so";
    fs::create_directories(there.parent_path());
    if (!fs::exists(there)) fs::create_symlink(emulated_cuda(), there);
    return there;
  }
  // The message that docs/errors.md shows, of the library of a real device.
  void expect_documented(const Outcome& o) const {
    const std::string text = replaced(o.err, "_emulated", "");
    ASSERT_TRUE(text.starts_with("error: ")) << text;
    EXPECT_THAT(read_file(source_path("/docs/errors.md")), HasSubstr("\n" + text));
  }
};

TEST_F(CudnnRun, TrainsLongSequencesLikeTheCpuAndTheOwnKernels) {
  ASSERT_EQ(run_with("cpu", "cpu").code, 0);
  const Outcome o = run_with("a", "cuda", {{"LMX_CUDNN", "1"}});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, Not(HasSubstr("[cudnn]")));
  ASSERT_EQ(run_with("own", "cuda", {{"LMX_CUDNN", "0"}}).code, 0);
  EXPECT_EQ(start_of("a")["compute"]["cuda"]["cudnn"], "9.19.0");
  EXPECT_FALSE(start_of("own")["compute"]["cuda"].contains("cudnn"));
  const std::vector<double> cpu = losses("cpu"), by_cudnn = losses("a"), own = losses("own");
  ASSERT_EQ(cpu.size(), 3u);
  ASSERT_EQ(by_cudnn.size(), 3u);
  ASSERT_EQ(own.size(), 3u);
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_NEAR(by_cudnn[i], cpu[i], 1e-3 * cpu[i]);
    EXPECT_NEAR(by_cudnn[i], own[i], 1e-3 * own[i]);
  }
  EXPECT_NE(by_cudnn, own) << "the same bits, so cuDNN was not used";
  EXPECT_LT(by_cudnn.back(), by_cudnn.front());
}

TEST_F(CudnnRun, TheSameBitsInEveryRun) {
  ASSERT_EQ(run_with("a", "cuda").code, 0);
  ASSERT_EQ(run_with("b", "cuda").code, 0);
  EXPECT_EQ(losses("a"), losses("b"));
}

TEST_F(CudnnRun, WithoutCudnnOneLineSaysSo) {
  const std::string text =
      "[cudnn] lmx's own kernels compute long attention: this build of lmx has no liblmx_cudnn_emulated.so";
  const Outcome o = run_with("a", "cuda", {{"LMX_CUDA_LIBRARY", device_without_cudnn()}});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr(text));
  EXPECT_EQ(o.err.find("[cudnn]"), o.err.rfind("[cudnn]"));
  ASSERT_EQ(run_with("own", "cuda", {{"LMX_CUDNN", "0"}}).code, 0);
  EXPECT_EQ(losses("a"), losses("own"));
}

TEST_F(CudnnRun, ARequiredCudnnThatIsMissingIsOneMessage) {
  const Outcome o = run_with("a", "cuda", {{"LMX_CUDA_LIBRARY", device_without_cudnn()}, {"LMX_CUDNN", "1"}});
  EXPECT_EQ(o.code, 2);
  EXPECT_FALSE(fs::exists(path("a")));
  expect_documented(o);
}

// The loader's reason, as if libcudnn.so.9 were missing.
TEST_F(CudnnRun, ARequiredCudnnThatDoesNotLoadIsOneMessage) {
  const std::string device = device_without_cudnn();
  std::ofstream(fs::path(device).replace_filename("liblmx_cudnn_emulated.so")) << "no library";
  const Outcome o = run_with("a", "cuda", {{"LMX_CUDA_LIBRARY", device}, {"LMX_CUDNN", "1"}});
  EXPECT_EQ(o.code, 2);
  EXPECT_FALSE(fs::exists(path("a")));
  EXPECT_THAT(o.err, Names("error: [cudnn] LMX_CUDNN=1: liblmx_cudnn_emulated.so cannot be loaded: ", "file too short",
                           "; install cuDNN 9 for CUDA 13, or add its folder to LD_LIBRARY_PATH"));
}

TEST_F(CudnnRun, AnotherValueOfTheVariableIsOneMessage) {
  const Outcome o = run_with("a", "cuda", {{"LMX_CUDNN", "on"}});
  EXPECT_EQ(o.code, 2);
  EXPECT_FALSE(fs::exists(path("a")));
  expect_documented(o);
}

TEST_F(CudnnRun, DevicesNamesTheVersion) {
  const Outcome o = run_process({build_path("/bin/lmx"), "devices"}, with({}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\ncuDNN 9.19.0\n"));
  const Outcome without =
      run_process({build_path("/bin/lmx"), "devices", "--json"}, with({{"LMX_CUDA_LIBRARY", device_without_cudnn()}}));
  EXPECT_EQ(nlohmann::json::parse(without.out)["cudnn_unavailable"],
            "this build of lmx has no liblmx_cudnn_emulated.so");
}

}  // namespace
}  // namespace lmx_test
