// Wrong inputs of lmx bench. (docs/performance.md has its measurements; timings are not tested.)
#include <algorithm>

#include "device.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

TEST(Bench, RefusesWhatItDoesNotKnow) {
  const std::pair<Words, NamesMatcher> cases[] = {
      {{"word_lstn"},
       Names("[bench] ", "'word_lstn'", "'word_lstm'?",
             "char_mlstm, char_rhn, nmt_transformer, gpt, batchers, compose")},
      {{"compose", "--recipe", "nowhere.yaml"}, Names("nowhere.yaml")},
      {{"--precision", "fp23"}, Names("[bench] ", "'fp23'", "'fp32'?", "fp32, bf16, fp16, all")},
      {{"--products", "tf23", "--precision", "fp32"}, Names("[bench] ", "'tf23'", "'tf32'?", "exact, tf32, bf16x3")},
      {{"--products", "tf32", "--device", "cuda", "--counts"}, Names("[bench] --products tf32", "--precision fp32")},
      {{"--products", "tf32", "--precision", "fp32"}, Names("[bench] --products tf32", "CPU", "--device cuda")},
      {{"--products", "tf32", "--precision", "fp32", "--counts"}, Names("[bench] --products tf32", "--device cuda")},
      {{"--scale", "papr"}, Names("[bench] ", "'papr'", "'paper'?", "cpu, paper")},
      {{"compose", "--scale", "paper"}, Names("[bench] --scale is not used by compose")},
      {{"compose", "--trace", "t.json"}, Names("[bench] --trace is not used by compose")},
      {{"batchers", "--precision", "fp32"}, Names("[bench] --precision is not used by batchers")},
      {{"batchers", "--recipe", "x.yaml"}, Names("[bench] --recipe is not used by batchers")},
      {{"gpt", "--pairs", "100"}, Names("[bench] --pairs is not used by gpt")},
      {{"--counts", "--table"}, Names("[bench] --table is not used with --counts if there is no GPU")},
      {{"--steps", "0"}, Names("[bench] --steps 0")},
      {{"--threads", "-1"}, Names("[bench] --threads -1")},
      {{"--device", "gpu"}, Names("[bench] --device 'gpu' is no device", "auto, cpu, cuda and cuda:N")},
      {{"--device", "cuda:900"}, Names("[bench] --device cuda:900 is not available")},
      {{"compose", "--device", "cuda"}, Names("[bench] --device is not used by compose")},
      {{"batchers", "--ranks", "0"}, Names("[bench] pairs 20000, ranks 0, steps 10")},
      {{"batchers", "--batchers", "token_budgt"}, Names("'token_budget'?")},
      {{"batchers", "--batchers", "tbptt"}, Names("batcher.max_tokens")},
      {{"batchers", "--pairs", "100", "--steps", "1"}, Names("8 sub-batches of 1000 tokens")},
      {{"batchers", "--model", "{name: lstm, embedding: 8, cells: 8}"}, Names("not translate")},
      {{"batchers", "--model", "{name: rhn, coupled: no, embedding: 8, cells: 8}"}, Names("not translate")},
      {{"batchers", "--model", "{name: rhn"}, Names("--model '{name: rhn': column 1: '{'")},
      {{"batchers", "--model", "rhn"}, Names("--model 'rhn':", "map")},
  };
  for (const auto& [arguments, facts] : cases) {
    const Outcome o = run_lmx(joined({"bench"}, arguments));
    EXPECT_THAT(o, Refuses(facts));
    EXPECT_EQ(o.out, "");
  }
}

TEST(Bench, ARecipeThatIsComposedHasItsLine) {
  const Outcome o = run_lmx({"bench", "compose", "--steps", "2", "--recipe", source_path("/recipes/ott_wmt.yaml")});
  ASSERT_THAT(o, Succeeds());
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["recipe"], "ott_wmt");
  EXPECT_GT(json["values"], 100);
  EXPECT_GE(json["slowest_ms"], json["ms"]);
}

// The whole command in seconds, with its progress lines without a terminal.
TEST(Bench, QuickBatchersTellHowFarTheyAre) {
  const Outcome o = run_lmx({"bench", "batchers", "--quick", "--threads", "1"}, {{"LMX_PROGRESS_S", "0.001"}});
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 3);
  EXPECT_THAT(o.err, testing::ContainsRegex("\\[bench\\] token_budget: step 2, sub-batch [0-9] of 4"));
  EXPECT_THAT(o.err, Names("time_balanced"));
}

// Times are not tested, but counts are.
TEST(Bench, BatchersHaveTheirLines) {
  const Outcome o =
      run_lmx({"bench", "batchers", "--steps", "1", "--repeats", "1", "--max-tokens", "200", "--pairs", "150",
               "--ranks", "2", "--model",
               "{name: transformer, encoder_layers: 1, decoder_layers: 1, d: 8, ffn: 8, heads: 1}", "--threads", "1"});
  ASSERT_THAT(o, Succeeds());
  std::istringstream lines(o.out);
  for (const std::string batcher : {"token_budget", "same_shape", "time_balanced"}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["batcher"], batcher);
    EXPECT_EQ(json["steps"], 1);
    EXPECT_GE(json["padding"], 0.0);
    EXPECT_LT(json["padding"], 0.5);
    EXPECT_GE(json["spread"], 0.0);
    EXPECT_GT(json["sub_batch_s"], 0.0);
    EXPECT_EQ(json["table_entries"] > 0, batcher == "time_balanced");
    EXPECT_NEAR(json["sentences"].get<double>() * json["sub_batches"].get<double>(), 150, 5);
  }
}

TEST(Bench, QuickStepsHaveTheirLines) {
  for (const std::string workload : {"word_lstm", "char_mlstm", "char_rhn", "nmt_transformer", "gpt"}) {
    const Outcome o = run_lmx({"bench", workload, "--quick", "--precision", "fp32", "--steps", "1", "--threads", "1"});
    ASSERT_THAT(o, Succeeds());
    const auto json = nlohmann::json::parse(o.out);
    EXPECT_EQ(json["scale"], "quick");
    EXPECT_EQ(json["device"], "cpu");
    EXPECT_LT(json["params"], 40000) << workload;
    EXPECT_FALSE(json.contains("counts"));
  }
}

// Without a GPU a step is counted: as many products on each device, and the launches of a GPU.
TEST(Bench, CountsNeedNoDevice) {
  const auto count = [](const std::string& device, const std::string& precision) {
    const Outcome o =
        run_lmx({"bench", "char_mlstm", "--counts", "--device", device, "--precision", precision, "--scale", "paper"},
                {{"CUDA_VISIBLE_DEVICES", ""}});
    EXPECT_THAT(o, Warns("of one step", "all launches"));
    return nlohmann::json::parse(o.out);
  };
  const auto cpu = count("cpu", "fp32"), gpu = count("cuda", "bf16");
  EXPECT_TRUE(gpu["counted"]);
  // Puri 2018: 4096 units over 64 numbers and 256 bytes, 128 sequences of 256.
  const double macs = 5.0 * 4096 * (64 + 4096) + 256.0 * 4096, gflop = 6e-9 * 128 * 256 * macs;
  EXPECT_NEAR(gpu["gflop"].get<double>(), gflop, 0.01 * gflop);
  EXPECT_NEAR(cpu["gflop"].get<double>(), gflop, 0.01 * gflop);
  EXPECT_GT(gpu["counts"]["launches"], 100);
  EXPECT_GT(cpu["peak_bytes"], gpu["peak_bytes"]);
}

// A paper's scale has other time steps, and --quick does not change their number.
TEST(Bench, ScalesHaveTheirTimeSteps) {
  const auto tokens = [](const std::string& scale) {
    const Outcome o = run_lmx(
        {"bench", "char_rhn", "--quick", "--scale", scale, "--precision", "fp32", "--steps", "1", "--threads", "1"});
    EXPECT_THAT(o, Succeeds());
    const auto line = nlohmann::json::parse(o.out);
    return line["tokens_per_s"].get<double>() * line["step_s"].get<double>();
  };
  EXPECT_NEAR(tokens("cpu"), 2 * 50, 2);
  EXPECT_NEAR(tokens("paper"), 2 * 150, 2);
}

// The number behind `call` in a file of tools/dev/peers.
double peers_number(const std::string& file, const std::string& call) {
  return number_in(read_file(source_path("/tools/dev/peers/") + file), call + "([0-9.]+)");
}

// torch.nn.Transformer has one argument for the dropouts of residual branches, attention weights and activations.
TEST(Bench, TheTransformerDrawsTheDropoutsOfThePeers) {
  const double torch = peers_number("torch_bench.py", "nn\\.Transformer\\([^)]*self\\.FFN, "),
               jax = peers_number("jax_bench.py", "Dropout\\(");
  EXPECT_GT(torch, 0);
  EXPECT_EQ(torch, jax);
  const Outcome o =
      run_lmx({"bench", "nmt_transformer", "--quick", "--precision", "fp32", "--steps", "1", "--threads", "1"});
  ASSERT_THAT(o, Succeeds());
  const auto line = nlohmann::json::parse(o.out);
  for (const char* key : {"dropout", "attention_dropout", "relu_dropout"}) {
    ASSERT_TRUE(line["model"].contains(key)) << key << " is lost";
    EXPECT_EQ(line["model"][key], torch) << key;
  }
  EXPECT_EQ(line["loss"]["label_smoothing"], peers_number("torch_bench.py", "label_smoothing="));
}

class DeviceBench : public DeviceTest {};

// Limits for the work of one step on a device without CUDA graphs. A change that needs more has to say why here. The
// numbers depend on the layers and time steps, which --quick does not change, and hardly on their widths.
TEST_F(DeviceBench, AStepNeedsFewLaunchesAndNoWait) {
  struct Limit {
    std::string workload, update;
    int64_t loop, others, updates, uploads;  // launches in the recurrent loop, other launches, launches of the update
  };
  const Limit limits[] = {
      {"word_lstm", "sgd", 20 * 6, 31, 1, 9},    // a time step: forward and backward two products and the cell
      {"char_mlstm", "adam", 64 * 8, 37, 1, 5},  // four products, and two kernels forward and backward
      {"char_rhn", "adam", 500 * 4, 52, 1, 5},   // 10 layers of a time step: a product and the cell
      // A side uploads the sinusoids and each word's row of them. A launch has the addresses of about 40 parameters.
      {"nmt_transformer", "adam", 0, 687, 7, 33},
      {"gpt", "adam", 0, 225, 2, 8},
  };
  for (const Limit& limit : limits) {
    SCOPED_TRACE(limit.workload);
    const Outcome o = run_lmx({"bench", limit.workload, "--quick", "--device", "cuda", "--counts", "--precision",
                               "fp32", "--steps", "1", "--threads", "1"},
                              {{"LMX_CUDA_GRAPHS", "0"}});
    ASSERT_THAT(o, Succeeds());
    const auto counts = nlohmann::json::parse(o.out)["counts"];
    EXPECT_LE(counts["launches"], limit.loop + limit.others) << o.err;
    EXPECT_GT(counts["launches"], limit.loop) << o.err;
    EXPECT_EQ(counts["launches_by_name"][limit.update], limit.updates);
    EXPECT_LE(counts["uploads"]["times"], limit.uploads);
    EXPECT_LT(counts["uploads"]["bytes"], 10000);
    EXPECT_EQ(counts["waits"], 0) << "the device has no work while the host waits within a step";
    EXPECT_THAT(o.err, testing::ContainsRegex("all launches +" + counts["launches"].dump()));
  }
}

// The requests of a step get the same addresses in every step, so its two recurrent loops are replayed as CUDA graphs.
TEST_F(DeviceBench, ALoopThatRepeatsIsOneLaunch) {
  const std::map<std::string, int64_t> limits{{"word_lstm", 33}, {"char_mlstm", 39}, {"char_rhn", 54}};
  for (const auto& [workload, limit] : limits) {
    const Outcome o = run_lmx({"bench", workload, "--quick", "--device", "cuda", "--counts", "--precision", "fp32",
                               "--steps", "3", "--threads", "1"});
    ASSERT_THAT(o, Succeeds());
    const auto counts = nlohmann::json::parse(o.out)["counts"];
    EXPECT_EQ(counts["launches_by_name"]["graph"], 2) << workload;
    EXPECT_LE(counts["launches"], limit) << workload << o.err;
  }
}

// Kernels round their results for the next product (lmx/operand.h), and updates their weights. Conversions remain for
// packed weights of recurrences. A residual connection of the Transformer is one kernel forward, and backward that
// kernel and one for its sums.
TEST_F(DeviceBench, AStepInBf16HasFewConversionsAndLaunches) {
  struct Limit {
    std::string workload;
    int64_t conversions, launches;
  };
  const Limit limits[] = {{"word_lstm", 11, 163},
                          {"char_mlstm", 9, 560},
                          {"char_rhn", 15, 2077},
                          {"nmt_transformer", 2, 443},
                          {"gpt", 0, 176}};
  for (const auto& [workload, conversions, launches] : limits) {
    const Outcome o = run_lmx({"bench", workload, "--quick", "--device", "cuda", "--counts", "--precision", "bf16",
                               "--steps", "1", "--threads", "1"},
                              {{"LMX_CUDA_GRAPHS", "0"}});
    ASSERT_THAT(o, Succeeds());
    const auto counts = nlohmann::json::parse(o.out)["counts"];
    EXPECT_LE(counts["launches_by_name"].value("convert", 0), conversions) << workload;
    EXPECT_LE(counts["launches"], launches) << workload << o.err;
  }
}

// The line states the products that were measured. Those in parts have more kernels, and those in TF32 as many.
TEST_F(DeviceBench, MeasuresProductsOfFp32OnTensorCores) {
  std::map<std::string, int64_t> launches;
  for (const std::string products : {"exact", "tf32", "bf16x3"}) {
    const Outcome o = run_lmx({"bench", "word_lstm", "--quick", "--device", "cuda", "--counts", "--precision", "fp32",
                               "--products", products, "--steps", "1", "--threads", "1"});
    ASSERT_THAT(o, Succeeds());
    const auto line = nlohmann::json::parse(o.out);
    EXPECT_EQ(line["precision"], "fp32");
    EXPECT_EQ(line["products"], products);
    launches[products] = line["counts"]["launches"];
  }
  EXPECT_EQ(launches["tf32"], launches["exact"]);
  EXPECT_GT(launches["bf16x3"], launches["exact"]);
}

TEST(Bench, HelpShowsEachDefault) {
  const Outcome o = run_lmx({"bench", "--help"});
  EXPECT_EQ(o.code, 0);
  for (const char* part : {"compose}=word_lstm\n", "--scale S:{cpu,paper}=cpu ",
                           "--precision P:{fp32,bf16,fp16,all}=all\n", "--products P:{exact,tf32,bf16x3}=exact",
                           "--device D=cpu ", "--steps N=10 ", "--threads N=0 ", "--trace FILE "})
    EXPECT_THAT(o.out, HasSubstr(part));
}

}  // namespace
}  // namespace lmx_test
