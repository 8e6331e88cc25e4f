// Short runs of each model, strategy and precision, against the records in records.jsonl: the losses of 20 steps, and
// the hash of the final parameters. Bits depend on the kind of CPU, so a case has one line for each kind; on a kind
// without a line, losses are compared with another kind's to a thousandth.
//
// LMX_GOLDEN_UPDATE=1 writes the lines of this kind of CPU (in one process); LMX_GOLDEN_AGAINST=BUILD compares with the
// lmx of another build folder instead of the records, to the bit. tools/dev/golden does both.
#include <oneapi/dnnl/dnnl_version.h>

#include <ostream>
#include <string_view>

#include "backend/cuda.h"
#include "base/files.h"
#include "lmx/error.h"
#include "lmx/matmul.h"
#include "process/run_fixture.h"
#include "process/text_fixtures.h"

namespace lmx_test {
namespace {

// The short runs whose results are recorded: each changes one part of words.yaml or pairs.yaml.

struct GoldenCase {
  std::string name;
  std::string recipe;  // words or pairs
  Words overrides;
};

std::ostream& operator<<(std::ostream& out, const GoldenCase& c) {
  return out << c.recipe << ".yaml";
}

std::vector<GoldenCase> golden_cases() {
  using Words = Words;
  const std::vector<std::pair<std::string, Words>> models{
      {"lstm", {"model.layers=2", "model.embedding=16", "model.cells=24", "model.dropout=0.1"}},
      {"lstm_projection", {"model.embedding=16", "model.cells=32", "model.projection=12"}},
      {"mlstm", {"model=mlstm", "model.embedding=16", "model.cells=24", "model.weight_norm='mlstm\\..*'"}},
      {"rhn", {"model=rhn", "model.embedding=16", "model.cells=24", "model.depth=3"}},
      {"rhn_checkpoint", {"model=rhn", "model.embedding=16", "model.cells=24", "model.checkpoint=true"}},
      {"decoder", {"model=transformer_lm", "model.decoder_layers=2", "model.d=16", "model.ffn=32", "model.heads=4"}},
      {"gpt", {"model=gpt", "model.layers=2", "model.d=16", "model.ffn=32", "model.heads=4", "model.kv_heads=2"}},
      {"gpt2", {"model=gpt2", "model.layers=2", "model.d=16", "model.ffn=32", "model.heads=4", "model.dropout=0.1"}},
      {"transformer", {}},
      {"transformer_pre",
       {"model.norm=pre", "model.share=none", "model.relu_dropout=0.1", "model.attention_dropout=0.1"}}};
  std::vector<GoldenCase> cases;
  for (const auto& [name, overrides] : models) {
    const bool pairs = name.starts_with("transformer");
    for (const std::string precision : {"fp32", "bf16", "fp16"}) {
      GoldenCase c{name + "_" + precision, pairs ? "pairs" : "words", overrides};
      c.overrides.push_back("precision=" + precision);
      cases.push_back(std::move(c));
    }
  }
  const Words lstm{"model.embedding=16", "model.cells=24"};
  const auto add = [&](const std::string& name, const Words& more) {
    GoldenCase c{name, "words", lstm};
    c.overrides.insert(c.overrides.end(), more.begin(), more.end());
    cases.push_back(std::move(c));
  };
  const Words ranks{"comm=virtual", "comm.ranks=4"};
  for (const std::string sync : {"allreduce", "allreduce_fp16", "allgather", "allgather_dense", "unique", "unique_fp16",
                                 "one_bit", "sampled_rows", "sampled_rows_one_bit"}) {
    Words words = ranks;
    words.push_back("sync=" + sync);
    if (sync.ends_with("fp16")) words.push_back("precision=fp16");
    if (sync.starts_with("sampled_rows")) words.push_back("loss=two_stage_softmax");
    add("sync_" + sync, words);
  }
  for (const std::string sync : {"unique_all_seeds", "unique_seeded", "unique_seeded_fp16"})
    add("sync_" + sync, {"comm=virtual", "comm.ranks=4", "sync=" + sync, "loss=sampled_softmax", "loss.samples=32"});
  add("server", {"comm=virtual", "comm.ranks=2", "sync=param_server"});
  add("server_rows", {"comm=virtual", "comm.ranks=2", "sync=param_server_rows", "loss=two_stage_softmax"});
  add("loss_sampled_softmax", {"loss=sampled_softmax", "loss.samples=32"});
  add("loss_two_stage_softmax", {"loss=two_stage_softmax"});
  add("optimizer_sgd", {"optimizer=sgd", "optimizer.lr=0.5", "++optimizer.momentum=0.9"});
  add("optimizer_adagrad", {"optimizer=adagrad"});
  add("optimizer_adamw", {"optimizer=adamw"});
  add("optimizer_rules",
      {"~optimizer", "~optimizer.lr", "+optimizer.tables={params: 'embedding|softmax', name: adagrad, lr: 0.1}",
       "+optimizer.rest={params: '.*', name: adamw, lr: 0.01, weight_decay: 0.1}"});
  add("optimizer_muon", {"optimizer=muon", "~optimizer.lr", "optimizer.other.lr=0.01"});
  add("optimizer_lion", {"optimizer=lion", "optimizer.lr=0.003"});
  add("optimizer_lamb", {"optimizer=lamb", "optimizer.lr=0.1"});
  add("optimizer_adafactor", {"optimizer=adafactor", "optimizer.lr=1"});
  add("optimizer_lars", {"optimizer=lars", "optimizer.lr=10"});
  add("optimizer_schedule_free",
      {"optimizer=schedule_free", "~optimizer.lr", "schedule=constant", "schedule.warmup=5"});
  add("schedule_wsd", {"schedule=wsd", "schedule.warmup=4", "schedule.decay=0.5", "schedule.shape=sqrt"});
  add("average", {"train.ema=0.9"});
  add("random_windows", {"batcher=random_windows", "batcher.sequence_length=8"});
  add("packed_windows", {"batcher=packed_windows", "batcher.sequence_length=8"});
  return cases;
}

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
    Words command{build / "bin/lmx", "run", path(c.recipe + ".yaml"), "run.dir=" + path(name),
                  lmx::str("train.steps=", steps)};
    command.insert(command.end(), c.overrides.begin(), c.overrides.end());
    if (device != "cpu") command.push_back("device=" + device);
    if (c.recipe == "pairs") {
      command.push_back("data.source_files=[" + path("source.txt") + "]");
      command.push_back("data.target_files=[" + path("target.txt") + "]");
    }
    const Outcome o = run_process(command, environment());
    if (o.code != 0) throw std::runtime_error(o.err);
    return {series(name, "train", "nll_nat"), series(name, "valid", "nll_nat"), hash_of_values(model(name, steps))};
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
  ASSERT_TRUE(other != records.end() && other->first.first == name) << "no record; tools/dev/golden --update writes it";
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
