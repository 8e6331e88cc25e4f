// The parameters of runs: their averages, and parameters with a vocabulary that they were not trained with.
#include "app/inference/saved_run.h"
#include "app/translation/translate.h"
#include "data/fixture.h"
#include "lmx/error.h"
#include "process/text_fixtures.h"
#include "runfiles/checkpoint.h"
#include "train/fixture.h"

namespace lmx::app {

// lmx average, without its command line.

namespace {

using namespace lmx_test;

class Average : public FolderTest {
 protected:
  // Makes a run with checkpoints 10, 20, ..., each with one parameter w = values[i], and perplexities if they are
  // given.
  void make_run(const std::vector<std::vector<float>>& values, const std::vector<double>& ppl = {}) {
    std::string metrics;
    for (size_t i = 0; i < values.size(); ++i) {
      TrainState state;
      state.model.emplace("w", floats({static_cast<int64_t>(values[i].size())}, values[i]));
      save_checkpoint(path("run"), static_cast<int64_t>(i + 1) * 10, state);
      if (i < ppl.size()) metrics += str("{\"step\":", (i + 1) * 10, ",\"split\":\"valid\",\"ppl\":", ppl[i], "}\n");
    }
    write_all(path("run/metrics.jsonl"), metrics);
  }
  std::vector<float> average(const AverageOptions& options) {
    paths_ = average_checkpoints(options, path("mean.safetensors"));
    const StateDict mean = load_safetensors(path("mean.safetensors"), Allocator::cpu());
    const auto w = mean.at("w").values<float>();
    return {w.begin(), w.end()};
  }
  std::string refused(const AverageOptions& options) {
    return user_error([&] { average_checkpoints(options, path("mean.safetensors")); });
  }
  std::string step(int n) const { return str(path("run"), "/checkpoints/step-", n); }
  Words paths_;
};

TEST_F(Average, OfNamedCheckpointsLastAndBest) {
  make_run({{1, 10}, {2, 20}, {6, 60}}, {5, 9, 4});
  EXPECT_EQ(average({{step(10), step(20)}, "", 0, 0}), (std::vector<float>{1.5, 15}));
  EXPECT_EQ(average({{}, path("run"), 2, 0}), (std::vector<float>{4, 40}));
  EXPECT_EQ(average({{}, path("run"), 0, 2}), (std::vector<float>{3.5, 35}));
  EXPECT_EQ(paths_, (Words{step(30), step(10)}));
  std::filesystem::rename(path("mean.safetensors"), path("first.safetensors"));
  EXPECT_EQ(average({{path("first.safetensors"), step(10)}, "", 0, 0}), (std::vector<float>{2.25, 22.5}));
}

// OUT was forgotten, so that the first checkpoint takes its place.
TEST_F(Average, IsSummedInDouble) {
  // In float, 2^24 + 1 + 1 would remain 2^24.
  make_run({{16777216}, {1}, {1}});
  EXPECT_EQ(average({{}, path("run"), 3, 0}), (std::vector<float>{static_cast<float>(16777218.0 / 3)}));
  make_run({{0.1f}, {0.1f}, {0.1f}});
  EXPECT_EQ(average({{}, path("run"), 3, 0}), (std::vector<float>{0.1f}));
}

TEST_F(Average, AFullDiskLeavesWhatWasThere) {
  make_run({{1, 10}, {2, 20}});
  write_all(path("mean.safetensors"), "the last one");
  EXPECT_THAT(lmx_test::error_on_full_disk(16,
                                           [&] {
                                             average_checkpoints({{}, path("run"), 2, 0}, path("mean.safetensors"));
                                           }),
              HasSubstr("mean.safetensors"));
  EXPECT_EQ(lmx_test::read_file(path("mean.safetensors")), "the last one");
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find("tmp"), std::string::npos) << entry.path();
}

TEST_F(Average, RefusesWhatHasNoAverage) {
  make_run({{1, 2}, {1, 2, 3}}, {5});
  EXPECT_THAT(refused({{step(10), step(20)}, "", 0, 0}), Names("parameter w", "(2) f32", "(3) f32"));
  EXPECT_THAT(refused({{}, path("run"), 3, 0}), Names("3 checkpoints", "keeps 2", "keep_last=3"));
  EXPECT_THAT(refused({{}, path("run"), 0, 2}), Names("2 checkpoints", "keeps 1", "validated"));
  EXPECT_THAT(refused({{}, path("run"), 0, 0}), Names("--last N", "--best N"));
  EXPECT_THAT(refused({{step(10)}, path("run"), 1, 0}), Names("--last N", "--best N"));
  EXPECT_THAT(refused({{}, path("run"), -1, 0}), Names("-1"));
  EXPECT_THAT(refused({{}, path("nowhere"), 1, 0}), Names(path("nowhere")));
  EXPECT_THAT(refused({{path("missing.safetensors")}, "", 0, 0}), Names("missing.safetensors"));
  save_safetensors(path("other.safetensors"), {{"v", floats({2}, {1, 2})}});
  EXPECT_THAT(refused({{step(10), path("other.safetensors")}, "", 0, 0}), Names("no parameter w"));
  EXPECT_FALSE(std::filesystem::exists(path("mean.safetensors")));
}

}  // namespace
}  // namespace lmx::app

// Parameters with a vocabulary that they were not trained with: that of another run, one edited by hand, or from a
// version that did not record it.

namespace lmx_test {
namespace {

class VocabularyTest : public LettersTest {
 protected:
  // Two runs over texts with the same number of characters; the characters of `b` differ from those of `a`.
  void SetUp() override {
    train("a", "abcdefghijklmnopqrst");
    train("b", "ABCDEFGHIJKLMNOPQRST");
  }
  // All commands that read parameters with a's vocabulary.
  std::vector<Words> readers(const std::string& which) const {
    return {{"eval", path("a"), "--checkpoint", which},
            {"generate", path("a"), "--tokens", "3", "--checkpoint", which},
            {"features", path("a"), path("texts.csv"), "--no-labels", "--out", path("f.csv"), "--checkpoint", which},
            {"probe", path("a"), "--train", path("texts.csv"), "--checkpoint", which}};
  }
};

TEST_F(VocabularyTest, OfAnotherRunIsRefused) {
  write("texts.csv", "label,sentence\n1,abc\n0,bcd\n1,cde\n0,def\n");
  for (const auto& words : readers(checkpoint("b"))) {
    const Outcome o = lmx(words);
    EXPECT_EQ(o.code, 2) << words[0];
    EXPECT_THAT(o.err, Names("error: [checkpoint] " + checkpoint("b"), "22 entries (SHA-256", "22 (SHA-256",
                             ", " + path("a") + "):", "entry 2"))
        << words[0];
  }
  for (const auto& words : readers(checkpoint("a"))) EXPECT_EQ(lmx(words).code, words[0] == "probe" ? 2 : 0);
  // Without the other run's vocabulary the message can name no entry.
  fs::remove(path("b/vocabulary.tsv"));
  EXPECT_THAT(lmx(readers(checkpoint("b"))[0]), Refuses(Names("22 entries"), Not(HasSubstr("entry "))));
}

TEST_F(VocabularyTest, EditedByHandIsRefused) {
  const std::string text = read_file(path("a/vocabulary.tsv"));
  std::string edited = text;
  const size_t line = edited.find('\n', edited.find("</s>")) + 1;  // start of the third entry's line
  edited[line] = '#';
  write("a/vocabulary.tsv", edited);
  EXPECT_THAT(lmx({"generate", path("a"), "--tokens", "3"}),
              Refuses("error: [checkpoint] " + path("a") + "/vocabulary.tsv", checkpoint("a"), "22 entries (SHA-256",
                      "22 (SHA-256"));
  EXPECT_THAT(lmx({"eval", path("a")}), Succeeds()) << "eval must read the vocabulary of the data";
  write("a/vocabulary.tsv", text);
  EXPECT_THAT(lmx({"generate", path("a"), "--tokens", "3"}), Succeeds());
}

TEST_F(VocabularyTest, MeansCarryTheirs) {
  ASSERT_THAT(lmx({"average", path("b.safetensors"), checkpoint("b", 2), checkpoint("b", 3)}), Succeeds());
  EXPECT_THAT(lmx({"eval", path("a"), "--checkpoint", path("b.safetensors")}).err,
              Names("b.safetensors", "22 entries"));
  EXPECT_THAT(lmx({"eval", path("b"), "--checkpoint", path("b.safetensors")}), Succeeds());
  for (const std::string& other : {checkpoint("b"), path("b.safetensors")}) {
    EXPECT_THAT(lmx({"average", path("mean.safetensors"), checkpoint("a"), other}),
                Refuses("error: [average] " + checkpoint("a"), other, "of 22 (SHA-256"));
    EXPECT_FALSE(fs::exists(path("mean.safetensors")));
  }
}

TEST_F(VocabularyTest, UnrecordedIsTaken) {
  const std::string file = "/model.safetensors";
  EXPECT_EQ(lmx({"eval", path("a"), "--checkpoint", checkpoint("b") + file}).code, 2)
      << "state.json in its folder records the vocabulary";
  fs::copy_file(checkpoint("b") + file, path("old.safetensors"));
  EXPECT_THAT(lmx({"eval", path("a"), "--checkpoint", path("old.safetensors")}), Succeeds());
}

}  // namespace
}  // namespace lmx_test
