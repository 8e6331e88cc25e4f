// metrics.jsonl, and the TensorBoard events in the same folder.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <mutex>

#include "app/run/run.h"
#include "base/text.h"
#include "runfiles/metrics.h"
#include "runfiles/open_window.h"
#include "runfiles/tensorboard.h"
#include "train/fixture.h"
#include "train/progress.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

std::string hex(const std::string& bytes) {
  std::string out;
  char pair[3];
  for (const char byte : bytes) {
    std::snprintf(pair, sizeof pair, "%02x", static_cast<unsigned char>(byte));
    out += pair;
  }
  return out;
}

TEST(Numbers, ShortestTextComesBack) {
  for (const double v : {0.0, 0.1, 1.0 / 3, 1e300, -2.5e-12, 123456789.0, std::numeric_limits<double>::denorm_min()})
    EXPECT_EQ(number_from_text(number_text(v)), v);
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(NAN), "NaN");
  EXPECT_EQ(number_text(-INFINITY), "-Infinity");
  EXPECT_TRUE(std::isnan(number_from_text("NaN")));
  EXPECT_EQ(number_from_text("Infinity"), INFINITY);
  EXPECT_THAT(user_error([] { number_from_text("1x"); }), Names("'1x'"));
  EXPECT_THAT(user_error([] { number_from_text(""); }), Names("''"));
}

TEST(Metrics, LineIsStrictJson) {
  const Record r{3, "train", {{"nll_nat", 0.5}, {"ppl", INFINITY}, {"lr", NAN}}};
  EXPECT_EQ(to_json_line(r), R"({"step":3,"split":"train","nll_nat":0.5,"ppl":"Infinity","lr":"NaN"})");
}

class MetricsFolder : public FolderTest {};

TEST_F(MetricsFolder, ResumeKeepsLinesUpToItsStep) {
  {
    MetricsFile file(path("m"), 0);
    for (int64_t step = 1; step <= 4; ++step) file.write({step, "train", {{"x", static_cast<double>(step)}}});
  }
  write_all(path("m"), lmx_test::read_file(path("m")) + "{\"step\":1,\"half");
  {
    MetricsFile file(path("m"), 2);
    file.write({3, "train", {{"x", 30}}});
  }
  EXPECT_EQ(lmx_test::read_file(path("m")),
            "{\"step\":1,\"split\":\"train\",\"x\":1}\n{\"step\":2,\"split\":\"train\",\"x\":2}\n"
            "{\"step\":3,\"split\":\"train\",\"x\":30}\n");
}

TEST_F(MetricsFolder, DamagedLinesAreCounted) {
  write_all(path("m"),
            "{\"step\":1,\"split\":\"train\",\"x\":1}\n"
            "{\"step\":2,\"split\":\"tra\x80n\",\"x\":2}\n"
            "{\"step\":2,\"split\":\"valid\"}\n"
            "{\"step\":3}\n"
            "\n"
            "{\"step\":4,\"split\":\"train\"}\n"
            "{\"step\":9,\"split\":\"train\"}\n"
            "{\"step\":5,\"split\":\"tr");
  const MetricsFile file(path("m"), 4);
  EXPECT_EQ(file.kept().damaged, (std::vector<int64_t>{2, 4, 5}));
  EXPECT_EQ(file.kept().train, 2);
  EXPECT_EQ(lmx_test::read_file(path("m")),
            "{\"step\":1,\"split\":\"train\",\"x\":1}\n{\"step\":2,\"split\":\"valid\"}\n"
            "{\"step\":4,\"split\":\"train\"}\n");
}

TEST_F(MetricsFolder, NotWritable) {
  EXPECT_THAT(run_error([&] { MetricsFile file(path("no/m"), 0); }), Names("no/m"));
  EXPECT_THAT(run_error([&] { EventFile file(path("no"), 0); }), Names("tfevents"));
}

// A limit on the file size makes a write fail in the same way as a full disk.
TEST_F(MetricsFolder, FullDisk) {
  const auto write_at_the_limit = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{0, 0};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string line = run_error([&] { MetricsFile(path("m"), 0).write({1, "train", {}}); });
    const std::string event = run_error([&] { EventFile(folder_.string(), 0); });
    const bool named = line.find(path("m")) != std::string::npos && event.find("tfevents") != std::string::npos;
    return named ? 0 : 1;
  };
  EXPECT_EQ(in_child(write_at_the_limit), 0);
}

// RFC 3720 B.4, and the usual check value.
TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

// leveldb's definition: rotate right by 15, add the constant.
TEST(Crc32c, Masked) {
  const uint32_t c = crc32c("foo");
  EXPECT_EQ(masked_crc32c("foo"), ((c >> 15) | (c << 17)) + 0xa282ead8u);
  EXPECT_EQ(masked_crc32c(""), 0xa282ead8u);
}

// In every event file of TensorFlow, byte 8 begins the masked CRC of the length of a 24-byte first record.
TEST(TensorBoard, FirstRecordOfEveryFile) {
  const std::string event = file_version_event(1.5);
  EXPECT_EQ(hex(event),
            "09000000000000f83f"
            "1a0d"
            "627261696e2e4576656e743a32");
  const std::string record = tf_record(event);
  EXPECT_EQ(hex(record.substr(0, 12)),
            "1800000000000000"
            "a37f4b22");
  EXPECT_EQ(record.size(), 8 + 4 + event.size() + 4);
  uint32_t crc = 0;
  std::memcpy(&crc, record.data() + record.size() - 4, 4);
  EXPECT_EQ(crc, masked_crc32c(event));
}

// As protobuf serialises Event{wall_time: 2, step: 300, summary{value{tag: "train/ppl", simple_value: 1.5}}}.
TEST(TensorBoard, ScalarsAsProtobufWritesThem) {
  EXPECT_EQ(hex(scalars_event(2, {300, "train", {{"ppl", 1.5}}})),
            "090000000000000040"
            "10ac02"
            "2a12"
            "0a10"
            "0a09"
            "747261696e2f70706c"
            "150000c03f");
  EXPECT_EQ(hex(scalars_event(2, {0, "v", {{"x", 0}}})),
            "090000000000000040"
            "2a0c"
            "0a0a"
            "0a03"
            "762f78"
            "1500000000");
  EXPECT_EQ(hex(session_start_event(2, 5)),
            "090000000000000040"
            "1005"
            "3a020801");
}

TEST_F(MetricsFolder, EventFileIsFramedRecords) {
  {
    EventFile fresh(folder_.string(), 0);
    fresh.write({1, "train", {{"a", 1}, {"b", 2}}});
  }
  std::string name;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) name = entry.path().string();
  EXPECT_THAT(name, HasSubstr("events.out.tfevents."));
  const std::string text = lmx_test::read_file(name);
  size_t records = 0, at = 0;
  for (; at < text.size(); ++records) {
    uint64_t length = 0;
    std::memcpy(&length, text.data() + at, 8);
    ASSERT_LE(at + 16 + length, text.size());
    EXPECT_EQ(tf_record(text.substr(at + 12, length)), text.substr(at, 16 + length));
    at += 16 + length;
  }
  EXPECT_EQ(records, 2u);
}

TEST(Progress, LineForPeople) {
  Window w;
  w.nats = 410.32;
  w.tokens = 100;
  w.grad_norm = 0.871;
  w.lr = 2.14e-4;
  EXPECT_EQ(progress_text(w, {250, 2000, 0.1, 412345}, {"word"}),
            "step 250/2000  ETA 2m55s  loss 4.1032  ppl 60.5  412k words/s  lr 2.14e-04  gnorm 0.87");
  // The perplexity of sampled words would be much lower than that of a validation.
  EXPECT_EQ(progress_text(w, {250, 2000, 0.1, 412345}, {"word", true}),
            "step 250/2000  ETA 2m55s  sampled loss 4.1032  412k words/s  lr 2.14e-04  gnorm 0.87");
  w.tokens = 0;  // every update of the window was skipped
  EXPECT_THAT(progress_text(w, {2000, 2000, 0.1, 10}, {"char"}),
              testing::AllOf(HasSubstr("loss nan"), HasSubstr("10 chars/s")));
}

TEST(Progress, Durations) {
  EXPECT_EQ(duration_text(0), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(200), "3m20s");
  EXPECT_EQ(duration_text(7500), "2h05m");
  EXPECT_EQ(duration_text(270000), "3d03h");
  EXPECT_EQ(duration_text(-1), "0s");
  EXPECT_EQ(rate_text(87.4), "87");
  EXPECT_EQ(rate_text(1234), "1.2k");
  EXPECT_EQ(rate_text(999999), "1.0M");
  EXPECT_EQ(rate_text(51.3e6), "51M");
}

}  // namespace
}  // namespace lmx::app

// Records are on disk before the checkpoint that depends on them. Every fsync() of this program and of the core calls
// the function below.

namespace {

std::mutex g_mutex;
std::vector<std::string>* g_synced = nullptr;

}  // namespace

extern "C" __attribute__((visibility("default"))) int fsync(int descriptor) {
  {
    const std::lock_guard lock(g_mutex);
    std::error_code error;
    if (g_synced)
      g_synced->push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), error).string());
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace lmx::app {
namespace {

class MetricsSync : public RunFolderTest {};

TEST_F(MetricsSync, RecordsComeBeforeTheCheckpoint) {
  const std::string recipe = R"(
data: {name: synthetic, vocab_size: 40, train_tokens: 2000, valid_tokens: 100, branching: 4, classes: 4}
batcher: {name: tbptt, sequence_length: 5}
batch: {global: 2}
model: {name: lstm, embedding: 4, cells: 4}
optimizer: {name: sgd, lr: 0.1}
train: {steps: 4, log_every: 1, eval_every: 4}
checkpoint: {every: 2, keep_last: 9}
threads: 1
)";
  std::vector<std::string> synced;
  {
    const std::lock_guard lock(g_mutex);
    g_synced = &synced;
  }
  run_recipe(parse_yaml(recipe + "run: {dir: " + path("r") + "}\n", "r.yaml"), "r", {});
  {
    const std::lock_guard lock(g_mutex);
    g_synced = nullptr;
  }
  const auto is_metrics = [](const std::string& file) { return file.ends_with("/metrics.jsonl"); };
  const auto is_model = [](const std::string& file) {
    return file.find("/model.safetensors.tmp-") != std::string::npos;  // it gets its name after that
  };
  int metrics = 0, models = 0;
  for (const std::string& file : synced) {
    metrics += is_metrics(file);
    models += is_model(file);
    EXPECT_GE(metrics, models) << testing::PrintToString(synced);
  }
  EXPECT_EQ(models, 2) << testing::PrintToString(synced);
}

// Counters of ranks between two records, as a checkpoint stores them.

OpenWindow counted(int64_t steps, int64_t sent, double error, double residual) {
  OpenWindow w;
  w.steps = steps;
  w.traffic[{"rest", "all_to_all"}] = {steps, sent, 2 * sent, 0.1};
  w.health["lstm.0.wx"] = {100 * steps, 3, 1, error, 2.5, residual};
  w.times = {0.25, 0.125};
  return w;
}

TEST(OpenWindow, ComesBackExactly) {
  const OpenWindow before = counted(7, 1234, 1.0 / 3, 1e-300);
  const OpenWindow after = open_window({before.to_json()}, "step-7");
  EXPECT_EQ(after.to_json(), before.to_json());
  EXPECT_EQ(after.health.at("lstm.0.wx").error, 1.0 / 3);
  EXPECT_EQ(open_window({}, "").to_json(), OpenWindow().to_json());
}

TEST(OpenWindow, AddsUpButForResiduals) {
  OpenWindow w = counted(7, 1000, 1, 8);
  w.add(counted(3, 10, 0.5, 2));
  EXPECT_EQ(w.steps, 10);
  const TrafficSum& sum = w.traffic.at({"rest", "all_to_all"});
  EXPECT_EQ(sum.sent, 1010);
  EXPECT_EQ(sum.received, 2020);
  const CodecHealth& h = w.health.at("lstm.0.wx");
  EXPECT_EQ(h.values, 1000);
  EXPECT_EQ(h.error, 1.5);
  EXPECT_EQ(h.residual, 2) << "the current residual";
}

// A run of four ranks continues with two: each takes the windows of two ranks, which counted the same steps.
TEST(OpenWindow, OfAnotherNumberOfRanks) {
  std::vector<std::string> texts;
  for (int64_t r = 0; r < 4; ++r) texts.push_back(counted(5, 1 << r, 0, 0).to_json());
  const auto numbers = window_texts(texts);
  const auto of = [&](int rank, int size) { return open_window(windows_of(numbers, rank, size), "x"); };
  EXPECT_EQ(of(1, 2).traffic.at({"rest", "all_to_all"}).sent, 2 + 8);
  EXPECT_EQ(of(1, 2).steps, 5);
  EXPECT_EQ(of(2, 4).traffic.at({"rest", "all_to_all"}).sent, 4);
  EXPECT_EQ(of(5, 8).steps, 0);
}

TEST(OpenWindow, DamagedText) {
  EXPECT_THAT(user_error([] { open_window({"{\"steps\":1}"}, "run/step-7"); }), Names("run/step-7/state.json"));
}

}  // namespace
}  // namespace lmx::app
