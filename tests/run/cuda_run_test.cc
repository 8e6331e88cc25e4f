// lmx run on a CUDA device: what it prints and records about the device, and its messages for every failure of one. The
// tests use the emulated device.
#include "comm/mpi_here.h"
#include "process/emulated.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

class CudaRun : public RunTest {
 protected:
  void SetUp() override {
    if (!fs::exists(emulated_cuda())) GTEST_SKIP() << "this build has no emulated device";
  }
  // lmx run tiny.yaml device=cuda ..., with further variables of the environment.
  Outcome run_on_device(const Words& more, const std::map<std::string, std::string>& variables = {}) const {
    Words overrides{"device=cuda"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    auto all = environment();
    all["LMX_CUDA_LIBRARY"] = emulated_cuda();
    all.insert(variables.begin(), variables.end());
    return run_process(command("a", overrides), all);
  }
  // The number that matches in the log of a run of so many steps, which validates and saves only at its end.
  int64_t counted(int steps, const std::string& pattern, Words more,
                  const std::map<std::string, std::string>& variables = {}) const {
    fs::remove_all(path("a"));
    for (const char* word : {"train.eval_every=1000", "train.log_every=1000", "checkpoint.every=1000",
                             "schedule={name: constant}", "batch.micro=8"})
      more.push_back(word);
    more.push_back("train.steps=" + std::to_string(steps));
    EXPECT_THAT(run_on_device(more, variables), Succeeds());
    const Match found = first_match(read_file(path("a") + "/log.txt"), pattern);
    if (found.empty()) return -1;
    std::string digits = found[1];
    std::erase(digits, ',');
    return std::stoll(digits);
  }
  nlohmann::json status() const { return nlohmann::json::parse(read_file(folder_ / "a" / "status.json")); }
  // The message that docs/errors.md shows for this failure.
  void expect_documented(const Outcome& o) const {
    const size_t begin = o.err.find("error: ");
    ASSERT_NE(begin, std::string::npos) << o.err;
    const std::string page = read_file(source_path("/docs/errors.md"));
    EXPECT_NE(page.find("\n" + o.err.substr(begin)), std::string::npos) << o.err << "is not in docs/errors.md";
  }
};

TEST_F(CudaRun, NamesTheDeviceAndItsMemory) {
  const Outcome o = run_on_device({"train.steps=5"});
  ASSERT_THAT(o, Warns("device cuda:0 (Emulated CUDA device, compute capability 9.0), 1 rank, 1 thread, fp32\n"));
  EXPECT_GT(bytes_of(o.err, "peak memory [0-9.]+ [kMG]?B: parameters"), 0);
  EXPECT_GT(bytes_of(o.err, "peak memory of the host for tensors"), 0);
  EXPECT_GT(bytes_of(o.err, "peak memory of CUDA graphs on the device"), 0);
}

TEST_F(CudaRun, RecordsTheDeviceInItsProvenance) {
  ASSERT_THAT(run_on_device({"train.steps=5"}, {{"LMX_EMULATED_MEMORY", "4000000000"}}), Succeeds());
  const auto start = nlohmann::json::parse(read_file(folder_ / "a" / "provenance.json"))["starts"][0];
  EXPECT_EQ(start["compute"]["device"], "cuda:0");
  const nlohmann::json expected{{"name", "Emulated CUDA device"},
                                {"compute_capability", "9.0"},
                                {"memory_bytes", 4000000000},
                                {"driver", "13.0"},
                                {"runtime", "13.0"}};
  EXPECT_EQ(start["compute"]["cuda"], expected);
}

TEST_F(CudaRun, ADryRunComparesTheMemoryOfTheDevice) {
  const Outcome enough = run_on_device({"--dry-run"});
  EXPECT_THAT(enough, Prints("device cuda:0 (Emulated CUDA device, compute capability 9.0) with 8.6 GB\n"));
  const Outcome small = run_on_device({"--dry-run"}, {{"LMX_EMULATED_MEMORY", "80000"}});
  EXPECT_EQ(small.code, 2);
  EXPECT_THAT(small.out, Names("memory: not enough: ", ", and cuda:0 has 80 kB\n"));
}

// In bf16, a residual connection with a norm after it keeps neither its sum nor the result of dropout.
TEST_F(CudaRun, TheMemoryOfATransformerIsWithinATenthOfTheEstimate) {
  write("tiny.yaml",
        "data: {name: synthetic, vocab_size: 100, train_tokens: 4000, valid_tokens: 300}\n"
        "batcher: {name: tbptt, sequence_length: 16}\nbatch: {global: 64}\nloss: {name: full_softmax}\n"
        "model: {name: transformer, encoder_layers: 0, decoder_layers: 4, d: 64, ffn: 128, heads: 2, share: none}\n"
        "optimizer: {name: adam, lr: 0.01}\ntrain: {steps: 1}\nthreads: 1\n");
  std::map<std::string, double> peaks;
  for (const std::string norm : {"post", "pre"}) {
    const Words words{"precision=bf16", "model.norm=" + norm};
    Words dry = words;
    dry.push_back("--dry-run");
    const Outcome said = run_on_device(dry), met = run_on_device(words);
    ASSERT_THAT(met, Succeeds());
    peaks[norm] = bytes_of(met.err, "peak memory");
    EXPECT_NEAR(bytes_of(said.out, "total"), peaks[norm], 0.1 * peaks[norm]) << norm << '\n' << said.out << met.err;
    fs::remove_all(path("a"));
  }
  EXPECT_LT(peaks["post"], 0.8 * peaks["pre"]);
}

// A sweep for another machine can be planned without a device.
TEST_F(CudaRun, ADryRunWithoutADeviceSaysSo) {
  const Outcome o = run_on_device({"--dry-run"}, {{"LMX_EMULATED_ERROR", "driver"}});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.out, Names("total ", "device: not available: ", "the driver of this machine", "data: available\n"));
  EXPECT_EQ(o.err, "");
}

TEST_F(CudaRun, AnOldDriverIsOneMessage) {
  const Outcome o = run_on_device({}, {{"LMX_EMULATED_ERROR", "driver"}});
  EXPECT_EQ(o.code, 2);
  EXPECT_FALSE(fs::exists(path("a")));
  EXPECT_THAT(o.err, Names("CUDA up to 12.2", "uses CUDA 13.0"));
  expect_documented(o);
}

TEST_F(CudaRun, AnotherArchitectureIsOneMessage) {
  const Outcome o = run_on_device({}, {{"LMX_EMULATED_ERROR", "architecture"}});
  EXPECT_EQ(o.code, 2);
  EXPECT_FALSE(fs::exists(path("a")));
  EXPECT_THAT(o.err, Names("compute capability 8.0", "-DLMX_CUDA_ARCHITECTURES=80"));
  expect_documented(o);
}

TEST_F(CudaRun, TooLittleMemoryIsOneMessageWithItsUsers) {
  const Outcome o = run_on_device({"model.cells=2000", "model.projection=0", "train.preflight=false"},
                                  {{"LMX_EMULATED_MEMORY", "300000000"}});
  EXPECT_THAT(o, Fails("[memory] cuda:0 cannot allocate ", "are in use: parameters ", "the device has 300 MB",
                       "The largest tensors: ", "batch.micro"));
  EXPECT_EQ(status()["state"], "failed");
  EXPECT_EQ(status()["cause"], "out_of_memory");
}

TEST_F(CudaRun, ATraceHasTheTimesOfTheDevice) {
  ASSERT_THAT(run_on_device({"train.steps=5", "--ranks", "2", "--trace", path("t.json")}), Succeeds());
  std::map<std::string, int> device, host;  // spans by name
  std::set<std::string> rows;
  const auto trace = nlohmann::json::parse(read_file(path("t.json")));
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") rows.insert(event["args"]["name"]);
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"], 0);
    ++(event["tid"] == 1000 ? device : host)[event["name"]];
  }
  EXPECT_TRUE(rows.contains("rank 0, device") && rows.contains("rank 1, device"));
  EXPECT_EQ(device["forward"], 2 * 5);
  EXPECT_EQ(device["update"], host["update"]);
}

// The loss and the norm of the gradients arrive together. The emulated device has computed them when the uploads of the
// update or of the next step are enqueued, so the host only waits if it reads them before that.
TEST_F(CudaRun, AStepWaitsOnceIfTheUpdateNeedsItsResults) {
  for (const std::string policy : {"stop", "skip"}) {
    const auto waits = [&](int steps) {
      return counted(steps, "waited for it ([0-9,]+) times", {"train.on_divergence=" + policy});
    };
    EXPECT_EQ(waits(10) - waits(5), policy == "stop" ? 0 : 5) << policy;
  }
}

// One kernel averages all parameters.
TEST_F(CudaRun, AMovingAverageIsOneLaunchAStep) {
  const auto launches = [&](const std::string& ema) {
    const std::string pattern = "did ([0-9,]+) launches";
    return counted(10, pattern, {"train.ema=" + ema}) - counted(5, pattern, {"train.ema=" + ema});
  };
  EXPECT_EQ(launches("0.9") - launches("0"), 5);
}

// A thread's calls concern device 0 until it selects another one: the threads of ranks, and those that exchange
// gradients beside the backward pass.
TEST_F(CudaRun, ComputesOnTheSecondDevice) {
  const std::map<std::string, std::string> two{{"LMX_EMULATED_DEVICES", "2"}};
  std::vector<Words> all{{}, {"--ranks", "2"}};
  if (why_no_mpi().empty())
    all.push_back({"comm.name=mpi", "++comm.ranks=2", "sync.rest.params=.*", "sync.rest.strategy=allreduce",
                   "sync.rest.codec.kind=fp16"});
  for (const auto& ranks : all) {
    SCOPED_TRACE(ranks.empty() ? "one rank" : ranks[0]);
    Words first{"train.steps=10"}, second{"train.steps=10", "device=cuda:1"};
    first.insert(first.end(), ranks.begin(), ranks.end());
    second.insert(second.end(), ranks.begin(), ranks.end());
    fs::remove_all(path("a"));
    Outcome o = run_on_device(first, two);
    ASSERT_THAT(o, Succeeds());
    const auto expected = model("a", 10);
    fs::remove_all(path("a"));
    o = run_on_device(second, two);
    ASSERT_THAT(o, Warns("cuda:1"));
    EXPECT_EQ(model("a", 10), expected);
  }
}

// Whichever call meets the failure first, a launch or a wait, the message is the same.
TEST_F(CudaRun, ADeviceThatFailsEndsTheRunWhichCanBeResumed) {
  for (const std::string launches : {"3000", "3005", "3010"}) {
    SCOPED_TRACE(launches);
    fs::remove_all(path("a"));
    const Outcome o = run_on_device({"train.steps=60"}, {{"LMX_EMULATED_ERROR", "lost:" + launches}});
    EXPECT_THAT(o, Fails());
    expect_documented(o);
    EXPECT_EQ(status()["state"], "failed");
    ASSERT_FALSE(fs::is_empty(path("a/checkpoints"))) << "the device failed before the first checkpoint";
  }
  EXPECT_THAT(run_on_device({"train.steps=60", "--resume", path("a")}), Succeeds());
}

// Processes with an emulated device each, and the emulated NCCL.
class NcclRun : public CudaRun {
 protected:
  void SetUp() override {
    CudaRun::SetUp();
    if (IsSkipped()) return;
    const Outcome probe = run("probe", {"comm={name: gloo, ranks: 1}", "train.steps=1"});
    if (probe.err.find("no Gloo") != std::string::npos) GTEST_SKIP() << "this build has no Gloo";
  }
  Outcome run_nccl(const std::string& comm, Words more, std::map<std::string, std::string> variables = {}) const {
    for (const char* word : {"precision=fp16", "loss_scale.init=1e9", "train.eval_every=10"}) more.push_back(word);
    more.push_back("comm={name: " + comm + ", ranks: 2}");
    variables.insert(kNccl.begin(), kNccl.end());
    return run_on_device(more, variables);
  }

  const std::map<std::string, std::string> kNccl{{"LMX_NCCL_LIBRARY", emulated_nccl()}, {"LMX_EMULATED_DEVICES", "2"}};
};

// Updates with overflowing gradients are left out, and the run is resumed, also with another group of the same size.
TEST_F(NcclRun, TrainsAndResumesInTheBitsOfVirtualRanks) {
  using Starts = std::vector<std::pair<std::string, std::string>>;  // groups of ranks, and until which step
  for (const std::string strategy : {"unique", "one_bit"}) {
    SCOPED_TRACE(strategy);
    std::string first;
    for (const Starts& starts : {Starts{{"virtual", "4"}}, Starts{{"nccl", "4"}}, Starts{{"nccl", "2"}, {"nccl", "4"}},
                                 Starts{{"nccl", "2"}, {"virtual", "4"}}}) {
      fs::remove_all(path("a"));
      for (const auto& [comm, until] : starts) {
        EXPECT_THAT(run_nccl(comm, {"train.steps=4", "sync.rest.params=.*", "sync.rest.strategy=" + strategy, "--until",
                                    until, "--resume", "auto"}),
                    Succeeds())
            << comm << " until " << until << ": ";
      }
      const std::string trained = model("a", 4) + metrics("a");
      ASSERT_FALSE(model("a", 4).empty());
      if (first.empty()) first = trained;
      EXPECT_EQ(trained, first) << starts[0].first << " until " << starts[0].second;
    }
  }
}

// The exchange runs on a separate stream, and the host waits for it and for the loss together.
TEST_F(NcclRun, AStepWaitsOnceIfTheUpdateNeedsItsResults) {
  for (const std::string strategy : {"unique", "one_bit"}) {
    for (const std::string policy : {"stop", "skip"}) {
      const auto waits = [&](int steps) {
        return counted(steps, "waited for it ([0-9,]+) times",
                       {"comm={name: nccl, ranks: 2}", "sync.rest.params=.*", "sync.rest.strategy=" + strategy,
                        "train.on_divergence=" + policy},
                       kNccl);
      };
      EXPECT_EQ(waits(4) - waits(2), policy == "stop" ? 0 : 2) << strategy << ' ' << policy;
    }
  }
}

TEST_F(NcclRun, TheExchangeHasARowOfTheTrace) {
  ASSERT_THAT(run_nccl("nccl", {"train.steps=5", "train.log_every=5", "--trace", path("t.json")}), Succeeds());
  std::set<std::string> rows;
  std::map<int, std::set<std::string>> spans;  // by row
  const auto trace = nlohmann::json::parse(read_file(path("t.json")));
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") rows.insert(event["args"]["name"]);
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"], 0);
    spans[event["tid"]].insert(event["name"]);
  }
  EXPECT_TRUE(rows.contains("rank 0, device") && rows.contains("rank 1, device, thread 2"));
  EXPECT_TRUE(spans[1000].contains("backward") && !spans[1000].contains("sync"));
  EXPECT_TRUE(spans[1001].contains("sync") && !spans[1001].contains("backward"));
}

// The units of the last step, in the time of the device: each is exchanged when it is ready, after the one before it.
TEST_F(NcclRun, RecordsTheTimesOfTheDevice) {
  ASSERT_THAT(run_nccl("nccl", {"train.steps=5", "train.log_every=5"}), Succeeds());
  int records = 0, units = 0;
  std::istringstream lines(read_file(path("a") + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::ordered_json::parse(line);
    if (record["split"] != "rank") continue;
    ++records;
    double comm = 0, last_end = 0;
    for (const auto& [key, value] : record.items()) {
      if (key.starts_with("comm/") && key.ends_with("/s")) comm += value.get<double>();
      if (!key.starts_with("unit/") || !key.ends_with("/ready_s")) continue;
      const std::string stem = key.substr(0, key.rfind('/') + 1);
      const double ready = value, begin = record[stem + "begin_s"], end = record[stem + "end_s"];
      EXPECT_TRUE(0 < ready && ready <= begin && begin < end && last_end <= begin) << line;
      last_end = end;
      ++units;
    }
    EXPECT_GT(comm, 0);
  }
  EXPECT_EQ(records, 2);
  EXPECT_GE(units, 2 * 2);
}

TEST_F(NcclRun, SaysThatNcclConnectsTheGpus) {
  const Outcome o = run_nccl("nccl", {"train.steps=2"});
  EXPECT_THAT(o.err, Names("device cuda:0", "2 processes (Gloo, started by lmx), NCCL between GPUs"));
}

TEST_F(NcclRun, RefusalsAreDocumented) {
  for (const auto& variable : {std::pair{"LMX_NCCL_LIBRARY", "libnccl.so.0"}, std::pair{"LMX_EMULATED_DEVICES", "1"}}) {
    const Outcome o = run_nccl("nccl", {}, {{variable.first, variable.second}});
    EXPECT_EQ(o.code, 2);
    expect_documented(o);
  }
}

}  // namespace
}  // namespace lmx_test
