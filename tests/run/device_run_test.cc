// Runs on a CUDA device: they continue in the same bits, and on the other kind of device up to rounding.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "comm/mpi_here.h"
#include "device.h"
#include "names.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

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
    EXPECT_EQ(o.code, 0) << o.err;
    return o;
  }
  std::string file(const std::string& dir, int step, const std::string& name) const {
    return read_file(folder_ / dir / ("checkpoints/step-" + std::to_string(step)) / name);
  }
  // The last validation loss.
  double validation(const std::string& dir) const {
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    double loss = NAN;
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      if (record["split"] == "valid") loss = record["nll_nat"];
    }
    return loss;
  }
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

TEST_F(DeviceRun, RefusesADeviceThatIsMissing) {
  const Outcome o = run("wrong", {"device=cuda:1000"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("device=cuda:1000", "is not available: the devices are cuda:0 to cuda:"));
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
  std::vector<double> losses(const std::string& dir, Words words) const {
    words.insert(words.end(), {"train.steps=6", "train.log_every=1"});
    const Outcome o = run(dir, words);
    EXPECT_EQ(o.code, 0) << dir << ": " << o.err;
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    std::vector<double> all;
    for (std::string line; std::getline(lines, line);) {
      const auto record = Json::parse(line);
      if (record["split"] == "train") all.push_back(record["nll_nat"]);
    }
    return all;
  }
};

TEST_F(DeviceRanks, ProcessesExchangeThroughTheHost) {
  const Outcome probe = run("probe", {"comm={name: gloo, ranks: 1}", "train.steps=1"});
  const bool has_gloo = probe.err.find("no Gloo") == std::string::npos;
  for (const std::string strategy : {"unique", "one_bit"}) {
    const Words sync{"sync.rest.params=.*", "sync.rest.strategy=" + strategy}, mpi{"comm={name: mpi, ranks: 2}"};
    const auto with = [](Words a, const Words& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
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

}  // namespace
}  // namespace lmx_test
