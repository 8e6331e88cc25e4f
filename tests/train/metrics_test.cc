// metrics.jsonl, and the TensorBoard events in the same folder.
#include "runfiles/metrics.h"
#include "base/text.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "names.h"
#include "runfiles/tensorboard.h"
#include "train/fixture.h"
#include "train/progress.h"

namespace lmx::train {
namespace {

using lmx_test::Names;
using testing::HasSubstr;

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
  EXPECT_THAT(message<UserError>([] { number_from_text("1x"); }), Names("'1x'"));
  EXPECT_THAT(message<UserError>([] { number_from_text(""); }), Names("''"));
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
  write_all(path("m"), read_all(path("m")) + "{\"step\":1,\"half");
  {
    MetricsFile file(path("m"), 2);
    file.write({3, "train", {{"x", 30}}});
  }
  EXPECT_EQ(read_all(path("m")),
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
  EXPECT_EQ(read_all(path("m")),
            "{\"step\":1,\"split\":\"train\",\"x\":1}\n{\"step\":2,\"split\":\"valid\"}\n"
            "{\"step\":4,\"split\":\"train\"}\n");
}

TEST_F(MetricsFolder, NotWritable) {
  EXPECT_THAT(message<RunError>([&] { MetricsFile file(path("no/m"), 0); }), Names("no/m"));
  EXPECT_THAT(message<RunError>([&] { EventFile file(path("no"), 0); }), Names("tfevents"));
}

// A limit on the file size makes a write fail in the same way as a full disk.
TEST_F(MetricsFolder, FullDisk) {
  const auto write_at_the_limit = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{0, 0};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string line = message<RunError>([&] { MetricsFile(path("m"), 0).write({1, "train", {}}); });
    const std::string event = message<RunError>([&] { EventFile(folder_.string(), 0); });
    const bool named = line.find(path("m")) != std::string::npos && event.find("tfevents") != std::string::npos;
    return named ? 0 : 1;
  };
  const pid_t child = fork();
  if (child == 0) _exit(write_at_the_limit());
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
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
  const std::string text = read_all(name);
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
}  // namespace lmx::train
