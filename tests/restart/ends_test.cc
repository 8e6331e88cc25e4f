// The end of a run says what it is: diverged, interrupted, done; and what a later start finds is right.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "names.h"
#include "paths.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

class Ends : public RunTest {
 protected:
  json status(const std::string& dir) const { return json::parse(read_file(folder_ / dir / "status.json")); }
  // The command line for /bin/sh, without its last word.
  std::string line(const std::string& dir, const Words& more = {}) const {
    std::string text = "exec";
    for (const std::string& word : command(dir, more)) text += " '" + word + "'";
    return text;
  }
};

// The last update has no later loss that would show what it has done.
TEST_F(Ends, ParametersThatAreNotFiniteHaveDiverged) {
  const Words wild{"optimizer={name: sgd, lr: 1e39}", "clip=0", "schedule={name: constant}", "train.ema=0"};
  const auto ended = [&](const std::string& dir, const Words& more) {
    Words words = wild;
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(dir, words);
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_THAT(o.err, Names("[train] step 1", "not finite"));
    EXPECT_EQ(o.out.find("next:"), std::string::npos) << o.out;
    EXPECT_EQ(status(dir)["state"], "failed");
    EXPECT_EQ(status(dir)["cause"], "diverged");
    EXPECT_THAT(lmx::list_checkpoints(path(dir)), IsEmpty());
  };
  ended("last", {"train.steps=1"});
  ended("pause", {"--until", "1"});
  ended("skip", {"train.steps=1", "train.on_divergence=skip"});
  ended("ranks", {"train.steps=1", "comm={name: virtual, ranks: 2}"});
}

// `lmx run ... | head`: a checkpoint and a true status, as for a closed terminal.
TEST_F(Ends, AReaderThatLeavesIsASignal) {
  const Outcome o = run_process(
      {"/bin/sh", "-c", "(" + line("a", {"train.steps=4000", "train.eval_every=20"}) + ") 2>&1 | head -n 1"},
      environment());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(status("a")["state"], "interrupted");
  EXPECT_FALSE(lmx::list_checkpoints(path("a")).empty());
}

TEST_F(Ends, ClosedStandardStreamsLeaveTheRecordsClean) {
  const Outcome o = run_process({"/bin/sh", "-c", line("a") + " <&- >&- 2>&-"}, environment());
  EXPECT_EQ(o.code, 0);
  std::istringstream lines(read_file(folder_ / "a" / "metrics.jsonl"));
  int records = 0;
  for (std::string text; std::getline(lines, text); ++records) EXPECT_TRUE(json::accept(text)) << text;
  EXPECT_GT(records, 10);
}

// A run could not continue from a checkpoint that another command has changed.
TEST_F(Ends, NoCommandWritesIntoACheckpoint) {
  ASSERT_EQ(run("a").code, 0);
  const std::string before = model("a"), file = path("a") + "/checkpoints/step-120/model.safetensors";
  for (const Words& words : {Words{"average", file, "--last", "2", path("a")},
                             {"report", path("a"), "--html", file},
                             {"report", path("a"), "--html", path("a") + "/checkpoints/step-120/page.html"}}) {
    const Outcome o = run_lmx(words, environment());
    EXPECT_EQ(o.code, 2) << words[0];
    EXPECT_THAT(o.err, HasSubstr("belongs to the checkpoint"));
  }
  EXPECT_TRUE(model("a") == before);
  EXPECT_FALSE(fs::exists(path("a") + "/checkpoints/step-120/page.html"));
}

// The content of the data must be the same. Its path may differ.
TEST_F(Ends, DataMayMoveButNotChange) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "w" + std::to_string(i % 29) + " follows v" + std::to_string(i % 31) + "\n";
  write("here.txt", text);
  const std::string recipe = kTinyRecipe;
  write("tiny.yaml", "data: {name: text, files: [" + path("here.txt") + "], valid_fraction: 0.1, vocab_size: 30}\n" +
                         recipe.substr(recipe.find("batcher:")));
  ASSERT_EQ(run("a", {"--until", "30"}).code, 0);
  ASSERT_EQ(run("whole").code, 0);
  fs::rename(path("here.txt"), path("there.txt"));
  const std::string files = "data.files=[" + path("there.txt") + "]";
  const Outcome o = run("a", {"--resume", path("a"), files});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(model("a"), model("whole"));
  write("there.txt", text + "one more line\n");
  const Outcome changed = run("a", {"--resume", path("a"), files, "train.steps=130"});
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.err, HasSubstr("the data of"));
}

// No user reads the message of such a start, so it takes the checkpoint before a damaged one.
TEST_F(Ends, AnUnattendedStartTakesTheLastIntactCheckpoint) {
  ASSERT_EQ(run("a").code, 0);
  const std::string whole = model("a"), last = path("a") + "/checkpoints/step-120/";
  for (const std::string file : {"model.safetensors", "state.json"}) {
    fs::resize_file(last + file, 0);
    const Outcome refused = run("a", {"--resume", path("a")});
    EXPECT_EQ(refused.code, 2) << file;
    EXPECT_THAT(refused.err, HasSubstr(file));
    const Outcome o = run("a", {"--resume", "auto"});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.err, Names("warning:", file, "the run continues from", "step-110"));
    EXPECT_TRUE(model("a") == whole) << file;
  }
}

}  // namespace
}  // namespace lmx_test
