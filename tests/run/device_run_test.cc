// Runs on a CUDA device: they continue in the same bits, and on the other kind of device up to rounding.
#include "comm/mpi_here.h"
#include "device.h"
#include "process/emulated.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

class DeviceRun : public RunTest {
 protected:
  void SetUp() override {
    if (lmx::load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
  // The first 20 steps of the tiny recipe, whose checkpoints contain every kind of state. The loss scale is too large
  // at first, so that some updates are left out.
  Outcome train(const std::string& dir, Words more) const {
    for (const char* word : {"train.steps=20", "train.eval_every=10", "precision=fp16", "loss_scale.init=1e9"})
      more.insert(more.begin(), word);
    Outcome o = run(dir, more);
    EXPECT_THAT(o, Succeeds());
    return o;
  }
  std::string file(const std::string& dir, int step, const std::string& name) const {
    return read_file(folder_ / dir / ("checkpoints/step-" + std::to_string(step)) / name);
  }
  // The last validation loss.
  double validation(const std::string& dir) const { return series(dir, "valid", "nll_nat").back(); }
  // The lines of a run's log about initial values.
  std::string init_lines(const std::string& dir) const {
    std::istringstream lines(read_file(folder_ / dir / "log.txt"));
    std::string found;
    for (std::string line; std::getline(lines, line);)
      if (const size_t at = line.find("init: "); at != std::string::npos) found += line.substr(at) + "\n";
    return found;
  }
};

TEST_F(DeviceRun, ContinuesInTheSameBits) {
  train("whole", {"device=cuda"});
  train("cut", {"device=cuda", "--until", "10"});
  train("cut", {"device=cuda", "--resume", "auto"});
  EXPECT_FALSE(model("whole", 20).empty());
  EXPECT_EQ(model("cut", 20), model("whole", 20));
  EXPECT_EQ(file("cut", 20, "train_state.safetensors"), file("whole", 20, "train_state.safetensors"));
  EXPECT_EQ(metrics("cut"), metrics("whole"));
  EXPECT_THAT(read_file(folder_ / "whole/provenance.json"), testing::HasSubstr("\"device\": \"cuda:0\""));
}

TEST_F(DeviceRun, ContinuesOnTheOtherKindOfDevice) {
  train("cpu", {"device=cpu"});
  for (const std::string first : {"cuda", "cpu"}) {
    train(first + "_first", {"device=" + first, "--until", "10"});
    train(first + "_first", {"device=" + std::string(first == "cpu" ? "cuda" : "cpu"), "--resume", "auto"});
    EXPECT_NEAR(validation(first + "_first") / validation("cpu"), 1, 1e-5) << first;
  }
}

TEST_F(DeviceRun, SeparatesDocuments) {
  const std::string recipe =
      replaced(kTinyRecipe, "model: .*", "model: {name: gpt, layers: 1, d: 8, heads: 2, ffn: 16}");
  write("tiny.yaml",
        replaced(recipe, "batcher: .*", "batcher: {name: packed_windows, sequence_length: 12, documents: separate}"));
  for (const std::string device : {"cpu", "cuda"})
    train(device, {"device=" + device, "precision=fp32", "train.steps=6", "train.eval_every=6"});
  EXPECT_NEAR(validation("cuda") / validation("cpu"), 1, 1e-5);
}

// A run moves to the CPU and back.
TEST_F(DeviceRun, ContinuesOnTheCpuAndAgainOnTheDevice) {
  train("whole", {"device=cuda"});
  train("moved", {"device=cuda", "--until", "5"});
  train("moved", {"device=cpu", "--resume", "auto", "--until", "15"});
  train("moved", {"device=cuda", "--resume", "auto"});
  EXPECT_NEAR(validation("moved") / validation("whole"), 1, 1e-5);
  const Json starts = Json::parse(read_file(folder_ / "moved/provenance.json"))["starts"];
  ASSERT_EQ(starts.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(starts[i]["compute"]["device"], i == 1 ? "cpu" : "cuda:0");
}

// Parts of a batch, activations that are computed again, and validation with the moving average.
TEST_F(DeviceRun, AccumulatesAndRecomputesAsTheCpu) {
  const Words words{"precision=fp32", "batch.micro=2", "model.checkpoint=true", "model.segment=2", "train.ema=0.8"};
  for (const std::string device : {"cuda", "cpu"}) {
    Words all = words;
    all.push_back("device=" + device);
    train(device, all);
  }
  EXPECT_NEAR(validation("cuda") / validation("cpu"), 1, 1e-6);
  train("values", {"precision=fp32", "batch.micro=2", "device=cuda", "train.ema=0"});
  EXPECT_GT(std::abs(validation("values") / validation("cuda") - 1), 1e-3) << "validation does not use the average";
}

TEST_F(DeviceRun, SixtyFourRanksShareTheDevice) {
  for (const std::string ranks : {"1", "64"})
    train(ranks, {"precision=fp32", "device=cuda", "batch={global: 64}", "--ranks", ranks, "train.steps=6",
                  "train.eval_every=3"});
  EXPECT_NEAR(validation("64") / validation("1"), 1, 1e-6);
}

TEST_F(DeviceRun, StartsFromValuesOfAnotherVocabularyAndFreezesTables) {
  train("source", {});
  for (const std::string device : {"cuda", "cpu"})
    train(device, {"device=" + device, "data.vocab_size=50", "init.from=" + path("source"), "init.freeze=^softmax",
                   "train.steps=10"});
  EXPECT_THAT(init_lines("cuda"), Names("embedding.weight: 50 of 50 rows", "2 parameters are frozen"));
  EXPECT_EQ(init_lines("cuda"), init_lines("cpu"));
  EXPECT_NEAR(validation("cuda") / validation("cpu"), 1, 1e-5);
}

// Three recurrent models, whose loops are replayed. The loss of an update follows the precision of the products.
TEST_F(DeviceRun, MultipliesFp32InEachMode) {
  const std::pair<std::string, double> modes[] = {{"tf32", 1e-2}, {"bf16x3", 1e-4}};
  for (const std::string kind : {"lstm", "rhn", "mlstm"}) {
    Words words{"precision=fp32", "device=cuda", "model.name=" + kind, "train.steps=10"};
    if (kind != "lstm") words.emplace_back("~model.projection");
    train(kind + "exact", words);
    for (const auto& [products, tolerance] : modes) {
      Words all = words;
      all.push_back("products=" + products);
      train(kind + products, all);
      EXPECT_NEAR(validation(kind + products) / validation(kind + "exact"), 1, tolerance) << kind << products;
      EXPECT_NE(model(kind + products, 10), model(kind + "exact", 10)) << kind << products;
    }
    EXPECT_NE(model(kind + "tf32", 10), model(kind + "bf16x3", 10)) << kind;
  }
  EXPECT_THAT(read_file(folder_ / "lstmtf32/log.txt"), testing::HasSubstr("fp32, products tf32"));
  EXPECT_EQ(Json::parse(read_file(folder_ / "lstmtf32/provenance.json"))["starts"][0]["compute"]["products"], "tf32");
  EXPECT_THAT(lmx({"report", path("lstmtf32")}).out, testing::HasSubstr("fp32, products tf32, 1 rank"));
}

TEST_F(DeviceRun, KeepsItsModeOfProducts) {
  const Words words{"precision=fp32", "device=cuda", "products=bf16x3"};
  const auto with = [&](const Words& more) { return joined(words, more); };
  train("whole", words);
  train("cut", with({"--until", "10"}));
  const Outcome other =
      run("cut",
          with({"train.steps=20", "train.eval_every=10", "loss_scale.init=1e9", "products=exact", "--resume", "auto"}));
  EXPECT_THAT(other, Refuses("trained with another recipe", "products: bf16x3 there, exact here"));
  train("cut", with({"--resume", "auto"}));
  EXPECT_EQ(model("cut", 20), model("whole", 20));
  // Commands that use a saved run on the CPU multiply exactly there.
  EXPECT_THAT(lmx({"eval", path("cut"), "--device", "cpu"}), Succeeds());
}

TEST_F(DeviceRun, RefusesADeviceThatIsMissing) {
  EXPECT_THAT(run("wrong", {"device=cuda:1000"}),
              Refuses("device=cuda:1000", "is not available: the devices are cuda:0 to cuda:"));
  EXPECT_FALSE(std::filesystem::exists(path("wrong")));
}

// Ranks that are processes: what they exchange goes through the memory of the host.
class DeviceRanks : public RunTest {
 protected:
  void SetUp() override {
    if (lmx::load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
    if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
    const Outcome o = run_lmx({"plugins", "info", "mpi"}, environment());
    if (o.out.find("heartbeat_s") == std::string::npos) GTEST_SKIP() << "this build has no MPI";
  }
  std::vector<double> losses(const std::string& dir, const Words& words) const {
    EXPECT_THAT(run(dir, joined(words, {"train.steps=6", "train.log_every=1"})), Succeeds()) << dir;
    return series(dir, "train", "nll_nat");
  }
};

TEST_F(DeviceRanks, ProcessesExchangeThroughTheHost) {
  const Outcome probe = run("probe", {"comm={name: gloo, ranks: 1}", "train.steps=1"});
  const bool has_gloo = probe.err.find("no Gloo") == std::string::npos;
  for (const std::string strategy : {"unique", "one_bit"}) {
    const Words sync{"sync.rest.params=.*", "sync.rest.strategy=" + strategy}, mpi{"comm={name: mpi, ranks: 2}"};
    const auto with = [](const Words& a, const Words& b) { return joined(a, b); };
    const std::vector<double> device = losses(strategy, with(with(sync, mpi), {"device=cuda"}));
    const std::vector<double> threads = losses(strategy + "_threads", with(sync, {"--ranks", "2", "device=cuda"}));
    const std::vector<double> cpu = losses(strategy + "_cpu", with(sync, mpi));
    EXPECT_EQ(device.size(), 6u);
    EXPECT_EQ(device, threads);  // both add in rank order
    expect_close(device, cpu, 1e-5);
    if (!has_gloo) continue;
    EXPECT_EQ(losses(strategy + "_gloo", with(sync, {"comm={name: gloo, ranks: 2}", "device=cuda"})), device);
  }
}

// lmx run with cuDNN on the emulated device, whose cuDNN is a reference (tests/cuda_emulator/cudnn): long sequences,
// the records, and the messages if cuDNN is missing.

// A language model whose sequences are longer than 512 tokens.
constexpr const char* kLongRecipe = R"(
data: {name: synthetic, vocab_size: 60, train_tokens: 3300, valid_tokens: 600, test_tokens: 200, branching: 8, classes: 6}
batcher: {name: tbptt, sequence_length: 530}
batch: {global: 2}
model: {name: transformer, encoder_layers: 0, decoder_layers: 1, d: 16, ffn: 32, heads: 2, dropout: 0}
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
  ASSERT_THAT(run_with("cpu", "cpu"), Succeeds());
  ASSERT_THAT(run_with("a", "cuda", {{"LMX_CUDNN", "1"}}), Warns(Not(HasSubstr("[cudnn]"))));
  ASSERT_THAT(run_with("own", "cuda", {{"LMX_CUDNN", "0"}}), Succeeds());
  EXPECT_EQ(start_of("a")["compute"]["cuda"]["cudnn"], "9.19.0");
  EXPECT_FALSE(start_of("own")["compute"]["cuda"].contains("cudnn"));
  const auto losses = [&](const std::string& dir) { return series(dir, "train", "nll_nat"); };
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
  ASSERT_THAT(run_with("a", "cuda"), Succeeds());
  ASSERT_THAT(run_with("b", "cuda"), Succeeds());
  EXPECT_EQ(series("a", "train", "nll_nat"), series("b", "train", "nll_nat"));
}

TEST_F(CudnnRun, WithoutCudnnOneLineSaysSo) {
  const std::string text =
      "[cudnn] lmx's own kernels compute long attention: this build of lmx has no liblmx_cudnn_emulated.so";
  const Outcome o = run_with("a", "cuda", {{"LMX_CUDA_LIBRARY", device_without_cudnn()}});
  ASSERT_THAT(o, Warns(text));
  EXPECT_EQ(o.err.find("[cudnn]"), o.err.rfind("[cudnn]"));
  ASSERT_THAT(run_with("own", "cuda", {{"LMX_CUDNN", "0"}}), Succeeds());
  EXPECT_EQ(series("a", "train", "nll_nat"), series("own", "train", "nll_nat"));
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
  EXPECT_THAT(run_process({build_path("/bin/lmx"), "devices"}, with({})), Prints("\ncuDNN 9.19.0\n"));
  const Outcome without =
      run_process({build_path("/bin/lmx"), "devices", "--json"}, with({{"LMX_CUDA_LIBRARY", device_without_cudnn()}}));
  EXPECT_EQ(nlohmann::json::parse(without.out)["cudnn_unavailable"],
            "this build of lmx has no liblmx_cudnn_emulated.so");
}

}  // namespace
}  // namespace lmx_test
