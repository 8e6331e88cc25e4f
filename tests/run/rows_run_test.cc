// Whole runs with losses and strategies that use rows of tables, and with a tied table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "names.h"
#include "paths.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class RowsRun : public RunTest {
 protected:
  // Writes tiny.yaml with another loss and other rules.
  void use(const std::string& loss, const std::string& sync = "", const std::string& more = "") const {
    std::string text = kTinyRecipe;
    const size_t at = text.find("loss: {"), end = text.find('\n', at);
    text.replace(at, end - at, "loss: {" + loss + "}");
    if (!sync.empty()) text += "sync: {all: {params: '.*', " + sync + "}}\n";
    write("tiny.yaml", text + more);
  }
};

TEST_F(RowsRun, EveryShippedGroupIsRight) {
  for (const char* kind : {"sync", "loss"}) {
    for (const auto& entry : fs::directory_iterator(source_path("/recipes/") + std::string(kind))) {
      const std::string choice = kind + ("=" + entry.path().stem().string());
      std::vector<std::string> words{"run", source_path("/recipes/quickstart.yaml"), "--ranks", "4", "--dry-run",
                                     choice};
      if (kind == std::string("sync")) words.push_back("loss=sampled_softmax");  // for groups that set its seeds
      const Outcome o = run_lmx(words, environment());
      EXPECT_EQ(o.code, 0) << choice << o.err;
    }
  }
}

TEST_F(RowsRun, ATiedTableTrainsAndGenerates) {
  for (const std::string loss :
       {"name: full_softmax", "name: sampled_softmax, samples: 20", "name: two_stage_softmax"}) {
    use(loss + ", tie: embedding.weight");
    Outcome o = run("tied", {"model.projection=12", "train.steps=40"});
    ASSERT_EQ(o.code, 0) << loss << o.err;
    // Parameters: the table 60 x 12, the LSTM 4 x 16 x (12 + 12) + 64 + 12 x 16, and the bias.
    EXPECT_THAT(read_file(path("tied/log.txt")), HasSubstr("2,572 parameters"));
    EXPECT_THAT(o.out, HasSubstr("valid ppl"));
    o = run_lmx({"generate", path("tied"), "--tokens", "5"}, environment());
    EXPECT_EQ(o.code, 0) << o.err;
    fs::remove_all(path("tied"));
  }
}

TEST_F(RowsRun, TiedTablesOfOtherSizesAreRefused) {
  use("name: full_softmax, tie: embedding.weight");
  const Outcome o = run("tied");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("loss.tie:", "embedding.weight", "(60, 12)", "(60, 8)", "features, 8"));
  EXPECT_FALSE(fs::exists(path("tied")));
}

// Rows are sampled by step, so later steps do not depend on where a checkpoint was made.
TEST_F(RowsRun, ResumedRunsDrawTheSameRows) {
  for (const std::string sync :
       {"strategy: sampled_rows", "strategy: sampled_rows, p: 25, q: 25, codec: {kind: one_bit}", "strategy: unique"}) {
    use("name: two_stage_softmax", sync);
    const std::vector<std::string> ranks{"--ranks", "3"};
    ASSERT_EQ(run("whole", ranks).code, 0) << sync;
    ASSERT_EQ(run("parts", {"--ranks", "3", "train.steps=50"}).code, 0) << sync;
    const Outcome o = run_process(command("parts", {"--ranks", "3", "--resume", path("parts")}), environment());
    ASSERT_EQ(o.code, 0) << sync << o.err;
    EXPECT_EQ(model("parts"), model("whole")) << sync;
    EXPECT_FALSE(model("whole").empty());
    for (const char* name : {"whole", "parts"}) fs::remove_all(path(name));
  }
}

TEST_F(RowsRun, WorkersOfAServerTakeRows) {
  use("name: two_stage_softmax", "strategy: sampled_rows, transport: param_server, codec: {kind: one_bit}", "");
  const std::vector<std::string> words{"--ranks", "4", "train.steps=60", "train.ema=0", "schedule.name=constant"};
  for (const char* name : {"a", "b"}) {
    const Outcome o = run(name, words);
    ASSERT_EQ(o.code, 0) << o.err;
  }
  EXPECT_THAT(read_file(path("a/log.txt")), Names("asynchronous", "4 workers", "90 %", "lstm"));
  EXPECT_EQ(model("a", 60), model("b", 60));
}

}  // namespace
}  // namespace lmx_test
