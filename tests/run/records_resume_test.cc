// Records of a resumed run: windows are complete, and missing lines are reported.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "names.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class RecordsResume : public RunTest {
 protected:
  std::vector<Json> records(const std::string& dir, const std::string& split) const {
    std::vector<Json> all;
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json record = Json::parse(line); record["split"] == split) all.push_back(record);
    return all;
  }
  void edit_metrics(const std::string& dir, const std::function<std::string(std::string)>& change) const {
    write(dir + "/metrics.jsonl", change(read_file(folder_ / dir / "metrics.jsonl")));
  }
};

// The last record of a paused run also counts the steps before the pause.
TEST_F(RecordsResume, AWindowCountsAllOfItsSteps) {
  const Words words{"--ranks",
                    "3",
                    "sync.rest.params=.*",
                    "sync.rest.strategy=one_bit",
                    "train.steps=40",
                    "train.log_every=20",
                    "train.eval_every=40",
                    "checkpoint.every=10",
                    "batch.micro=0"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  Outcome o = run("whole", words);
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(run("cut", with({"--until", "19"})).code, 0);
  ASSERT_EQ(run("cut", with({"--until", "27", "--resume", path("cut")})).code, 0);
  ASSERT_EQ(run("cut", with({"--resume", path("cut")})).code, 0);
  const auto whole = records("whole", "train"), cut = records("cut", "train");
  ASSERT_EQ(whole.size(), 2u);
  ASSERT_EQ(cut.size(), 2u);
  int errors = 0;
  for (size_t i = 0; i < whole.size(); ++i)
    for (const auto& [key, value] : whole[i].items()) {
      if (!key.starts_with("codec/")) continue;
      ++errors;
      EXPECT_NEAR(cut[i].at(key).get<double>(), value.get<double>(), 1e-9 * std::abs(value.get<double>())) << key;
    }
  EXPECT_GT(errors, 10);
  // Validations at the pauses and the texts of records are also counted: some hundred bytes of many thousands.
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char* key : {"comm_sent_bytes", "comm_received_bytes"}) {
      const double expected = whole[i].at(key);
      EXPECT_NEAR(cut[i].at(key).get<double>(), expected, 0.1 * expected) << key << " at " << whole[i]["step"];
    }
  const auto ranks = records("cut", "rank"), others = records("whole", "rank");
  ASSERT_EQ(ranks.size(), 6u);
  for (size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(ranks[i]["steps"], 20);
    EXPECT_EQ(ranks[i]["comm/rest/all_to_all/sent_bytes"], others[i]["comm/rest/all_to_all/sent_bytes"]);
  }
}

// The interval of checkpoints does not change the recorded traffic of steps.
TEST_F(RecordsResume, CheckpointsAreNotCountedAsTraffic) {
  const Words words{"--ranks", "2", "train.steps=14", "train.log_every=7", "train.eval_every=14", "batch.micro=0"};
  const auto run_with = [&](const std::string& dir, const std::string& every) {
    Words all = words;
    all.push_back("checkpoint.every=" + every);
    ASSERT_EQ(run(dir, all).code, 0);
  };
  run_with("often", "1");
  run_with("once", "14");
  EXPECT_EQ(records("often", "train")[0]["comm_sent_bytes"], records("once", "train")[0]["comm_sent_bytes"]);
  EXPECT_GT(records("once", "train")[0]["comm_sent_bytes"], 0);
}

TEST_F(RecordsResume, DamageIsToldOf) {
  ASSERT_EQ(run("r", {"train.steps=60"}).code, 0);
  fs::copy(path("r"), path("hole"), fs::copy_options::recursive);
  const Words on{"train.steps=70", "--resume"};
  // One bit of the second line is changed.
  edit_metrics("r", [](std::string text) {
    text[text.find('\n') + 1] ^= 1;
    return text;
  });
  Outcome o = run("r", {"train.steps=70", "--resume", path("r")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, Names("warning: ", path("r") + "/metrics.jsonl:2: "));
  // Complete lines are missing, as after a power loss.
  edit_metrics("hole", [](const std::string& text) { return text.substr(0, text.find("{\"step\":28")); });
  o = run("hole", {"train.steps=70", "--resume", path("hole")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, Names("warning:", path("hole") + "/metrics.jsonl", "6 of 9"));
  // The warning is not repeated: the next resume accepts the file.
  o = run("hole", {"train.steps=80", "--resume", path("hole")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err.find("warning: "), std::string::npos) << o.err;
}

}  // namespace
}  // namespace lmx_test
