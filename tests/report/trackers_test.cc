// lmx report --to: the files of MLflow and of Weights & Biases. tests/python reads them with these programs' packages.
#include "app/report/trackers.h"

#include <boost/crc.hpp>
#include <cstring>

#include "process/report_fixture.h"

namespace lmx_test {
namespace {

using lmx::app::report::leveldb_log;
using lmx::app::report::seconds_of;
using Fields = std::vector<std::pair<int, std::string>>;

TEST(Trackers, TimesHaveAZone) {
  EXPECT_EQ(seconds_of("1970-01-02T00:00:10+0000"), 86410);
  EXPECT_EQ(seconds_of("1970-01-02T02:30:10+0230"), 86410);
  EXPECT_EQ(seconds_of("2026-05-01T10:15:00-0500"), 1777648500);
  for (const char* wrong : {"", "yesterday", "2026-05-01T10:15:00", "2026-05-01T10:15:00+0000 "})
    EXPECT_EQ(seconds_of(wrong), 0) << wrong;
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The records of a log, as LevelDB's document describes them.
Words read_log(const std::string& log, size_t at) {
  Words records;
  std::string record;
  bool open = false;
  while (at < log.size()) {
    if (const size_t room = 32768 - at % 32768; room < 7) {
      EXPECT_EQ(log.substr(at, room), std::string(room, '\0'));
      at += room;
      continue;
    }
    const auto size = number_at<uint16_t>(log, at + 4);
    const char type = log[at + 6];
    EXPECT_EQ(open, type == 3 || type == 4) << at;
    open = type == 2 || type == 3;
    boost::crc_32_type crc;
    crc.process_bytes(log.data() + at + 6, size + 1u);
    EXPECT_EQ(number_at<uint32_t>(log, at), crc.checksum());
    EXPECT_LE(at % 32768 + 7 + size, 32768u);
    record += log.substr(at + 7, size);
    at += 7 + size;
    if (type == 1 || type == 4) records.push_back(std::exchange(record, ""));
  }
  EXPECT_FALSE(open);
  return records;
}

TEST(Trackers, RecordsOfALogAreSplitAtBlocks) {
  for (const size_t size : {0, 1, 100, 32741, 32742, 32743, 32747, 32748, 32749, 32754, 32761, 40000, 200000}) {
    const Words records{std::string(size, 'a'), "b", std::string(70000, 'c'), ""};
    const std::string log = leveldb_log("header.", records);
    EXPECT_EQ(log.substr(0, 7), "header.");
    EXPECT_EQ(read_log(log, 7), records) << size;
  }
}

// The fields of a message of Protocol Buffers: length-delimited ones as their bytes, varints as decimals.
Fields fields_of(const std::string& message) {
  Fields fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint(), value = varint();
    EXPECT_TRUE((key & 7) == 0 || (key & 7) == 2) << key;
    const bool is_bytes = (key & 7) == 2;
    fields.emplace_back(static_cast<int>(key >> 3), is_bytes ? message.substr(at, value) : std::to_string(value));
    if (is_bytes) at += value;
  }
  return fields;
}

std::string field(const std::string& message, int number) {
  for (const auto& [own, value] : fields_of(message))
    if (own == number) return value;
  return "";
}

// The values of items {key_field: key, 16: JSON} in the fields `number` of a message.
std::map<std::string, std::string> items(const std::string& message, int number, int key_field) {
  std::map<std::string, std::string> found;
  for (const auto& [own, value] : fields_of(message))
    if (own == number) found[field(value, key_field)] = field(value, 16);
  return found;
}

class TrackerFiles : public ReportPageTest {
 protected:
  TrackerFiles() { fs::create_directory(folder_ / "out"); }

  // lmx report ... in the folder `out`.
  Outcome exported(const Words& more) const {
    return run_process(
        joined({"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", path("out"), build_path("/bin/lmx"), "report"}, more),
        environment());
  }
  // A run of three steps that ended in this state.
  void make(const std::string& dir, const std::string& state) {
    make_run(dir,
             {{{"step", 1}, {"split", "train"}, {"ppl", 9.5}, {"lr", 0.1}, {"lr/rest", 0.2}, {"step_s", 2.0}},
              {{"step", 1}, {"split", "rank"}, {"rank", 0}, {"steps", 1}},
              {{"step", 3}, {"split", "train"}, {"ppl", "NaN"}, {"lr", 0.1}, {"step_s", 0.5}},
              {{"step", 3}, {"split", "valid"}, {"ppl", 8.25}}},
             "seed: 1\noptimizer:\n  lr: 1e-04\n  name: adam\n",
             R"({"state":")" + state + R"(","step":3,"time":"1970-01-01T01:00:09+0000"})");
    write(dir + "/provenance.json",
          R"({"starts":[{"time":"1970-01-01T01:00:00+0000","lmx":{"version":"0.0-test"},"host":{"name":"h"}},{}]})");
  }
  // The only entry of a folder whose name begins so.
  static fs::path only(const fs::path& folder, const std::string& begin = "") {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().starts_with(begin)) found.push_back(entry.path());
    EXPECT_EQ(found.size(), 1u) << folder << " " << begin;
    return found.empty() ? fs::path() : found[0];
  }
  fs::path experiment(const std::string& name) const {
    for (const auto& entry : fs::directory_iterator(folder_ / "out/mlruns"))
      if (entry.path().filename() != ".trash" &&
          read_file(entry.path() / "meta.yaml").find("\"" + name + "\"") != std::string::npos)
        return entry.path();
    ADD_FAILURE() << "no experiment " << name;
    return {};
  }
  Words records(const std::string& folder = "out/wandb") const {
    const fs::path run = only(folder_ / folder, "offline-run-");
    const std::string log = read_file(only(run, "run-"));
    EXPECT_EQ(log.substr(0, 7), std::string(":W&B\xE1\xBE\0", 7));
    return read_log(log, 7);
  }
};

TEST_F(TrackerFiles, OfMlflow) {
  make("words/first", "done");
  ASSERT_THAT(exported({path("words/first"), "--to", "mlflow"}), Prints("mlflow   mlruns/"));
  EXPECT_EQ(Json::parse(read_file(folder_ / "out/mlruns/0/meta.yaml"))["name"], "Default");
  fs::path run;
  for (const auto& entry : fs::directory_iterator(experiment("words")))
    if (entry.is_directory()) run = entry.path();
  EXPECT_EQ(read_file(run / "metrics/train/ppl"), "3602000 9.5 1\n3603000 NaN 3\n");
  EXPECT_EQ(read_file(run / "metrics/train/lr"), "3602000 0.1 1\n3603000 0.1 3\n");
  EXPECT_EQ(read_file(run / "metrics/train/lr.rest"), "3602000 0.2 1\n");  // lr/rest would need a folder lr
  EXPECT_EQ(read_file(run / "metrics/valid/ppl"), "3603000 8.25 3\n");
  EXPECT_FALSE(fs::exists(run / "metrics/rank"));
  EXPECT_EQ(read_file(run / "params/optimizer.lr"), "1e-04");
  EXPECT_EQ(read_file(run / "tags/mlflow.runName"), "first");
  EXPECT_EQ(read_file(run / "tags/lmx.host"), "?");  // the last start has none
  EXPECT_TRUE(fs::is_directory(run / "artifacts"));
  const Json meta = Json::parse(read_file(run / "meta.yaml"));
  EXPECT_EQ(meta["run_id"], run.filename().string());
  EXPECT_EQ(meta["experiment_id"], run.parent_path().filename().string());
  EXPECT_EQ(meta["status"], 3);
  EXPECT_EQ(meta["start_time"], 3600000);
  EXPECT_EQ(meta["end_time"], 3609000);
  EXPECT_EQ(meta["artifact_uri"], "file://" + (run / "artifacts").string());
}

TEST_F(TrackerFiles, ASecondExportReplacesTheFirst) {
  make("words/first", "running");
  make("words/second", "failed");
  make("other/points/0-a", "paused");
  for (int i = 0; i < 2; ++i) {
    ASSERT_THAT(exported({path("words"), path("other"), "--to", "mlflow"}), Succeeds());
    ASSERT_THAT(exported({path("words/first"), "--to", "wandb"}), Succeeds());
  }
  std::vector<int> states;
  for (const auto& entry : fs::directory_iterator(experiment("words")))
    if (entry.is_directory()) states.push_back(Json::parse(read_file(entry.path() / "meta.yaml"))["status"]);
  EXPECT_THAT(states, testing::UnorderedElementsAre(1, 4));
  const fs::path other = experiment("other");  // and not "points"
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "out/mlruns"), fs::directory_iterator()), 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(other), fs::directory_iterator()), 2);
  EXPECT_EQ(field(records().back(), 18), "");  // a run that trains has no end
}

TEST_F(TrackerFiles, AnExperimentOfMlflowIsContinued) {
  for (const char* name : {"name: words", "name: 'words'"}) {
    fs::remove_all(folder_ / "out/mlruns");
    fs::create_directories(folder_ / "out/mlruns/77");
    write("out/mlruns/77/meta.yaml", std::string("experiment_id: '77'\n") + name + "\nlifecycle_stage: active\n");
    make("words/first", "done");
    ASSERT_THAT(exported({path("words/first"), "--to", "mlflow"}), Succeeds());
    EXPECT_EQ(only(folder_ / "out/mlruns").filename(), "77");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "out/mlruns/77"), fs::directory_iterator()), 2) << name;
  }
}

TEST_F(TrackerFiles, OfWandb) {
  make("words/first", "failed");
  ASSERT_THAT(exported({path("words/first"), "--to", "wandb"}), Prints("wandb   wandb/offline-run-19700101_010000-"));
  const Words all = records();
  ASSERT_EQ(all.size(), 6u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(field(all[i], 1), std::to_string(i + 1));
  EXPECT_THAT(field(field(field(all[0], 21), 1), 1), testing::StartsWith("lmx "));
  const std::string run = field(all[1], 17);
  EXPECT_EQ(only(folder_ / "out/wandb").filename().string().substr(28), field(run, 1));
  EXPECT_EQ(field(run, 3), "words");
  EXPECT_EQ(field(run, 8), "first");
  EXPECT_EQ(field(field(run, 17), 1), "3600");
  const auto config = items(field(run, 4), 1, 1);
  EXPECT_EQ(Json::parse(config.at("optimizer")), Json::parse(R"({"lr": 1e-4, "name": "adam"})"));
  EXPECT_EQ(config.at("seed"), "1");
  EXPECT_TRUE(config.contains("lmx"));
  // All records of a step are one row.
  auto row = items(field(all[3], 2), 1, 2);
  EXPECT_EQ(row, (std::map<std::string, std::string>{{"_step", "3"},
                                                     {"_timestamp", "3603"},
                                                     {"_runtime", "3"},
                                                     {"train/ppl", "NaN"},
                                                     {"train/lr", "0.1"},
                                                     {"train/step_s", "0.5"},
                                                     {"valid/ppl", "8.25"}}));
  EXPECT_EQ(field(field(field(all[3], 2), 2), 1), "3");
  auto summary = items(field(all[4], 3), 1, 2);
  EXPECT_EQ(summary.at("train/lr/rest"), "0.2");
  EXPECT_EQ(summary.at("valid/ppl"), "8.25");
  EXPECT_EQ(field(field(all[5], 18), 1), "1");
  EXPECT_EQ(field(field(all[5], 18), 2), "3");
  make("words/first", "done");
  ASSERT_THAT(exported({path("words/first"), "--to", "wandb"}), Succeeds());
  EXPECT_EQ(field(field(records().back(), 18), 1), "");
}

TEST_F(TrackerFiles, WrongUseIsRefused) {
  make("words/first", "done");
  const auto refused = [&](const Words& more, int code, const Words& parts) {
    const Outcome o = exported(more);
    EXPECT_EQ(o.code, code) << o.out;
    for (const std::string& part : parts) EXPECT_THAT(o.err, Names(part));
  };
  refused({path("words/first"), "--to", "mlfow"}, 2, {"--to", "mlfow", "mlflow", "wandb"});
  refused({path("words/first"), "--to", "mlflow", "--json"}, 2, {"--to", "--json"});
  refused({path("words/first"), "--to", "mlflow", "--html", "x.html"}, 2, {"--to", "--html"});
  refused({path("words/first"), "--to", "mlflow", "--watch", "5"}, 2, {"--to", "--watch"});
  refused({path("words/none"), "--to", "wandb"}, 2, {"there is no run directory"});
  write("out/mlruns", "a file");
  refused({path("words/first"), "--to", "mlflow"}, 1, {"mlruns"});
  write("out/wandb", "a file");
  refused({path("words/first"), "--to", "wandb"}, 1, {"wandb/offline-run-"});
}

}  // namespace
}  // namespace lmx_test
