// Parameters with a vocabulary that they were not trained with: that of another run, one edited by hand, or from a
// version that did not record it.
#include <gmock/gmock.h>

#include "names.h"
#include "process/letters_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class VocabularyTest : public LettersTest {
 protected:
  // Two runs over texts with the same number of characters; the characters of `b` differ from those of `a`.
  void SetUp() override {
    train("a", "abcdefghijklmnopqrst");
    train("b", "ABCDEFGHIJKLMNOPQRST");
  }
  // All commands that read parameters with a's vocabulary.
  std::vector<std::vector<std::string>> readers(const std::string& which) const {
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
  const Outcome o = lmx(readers(checkpoint("b"))[0]);
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, AllOf(Names("22 entries"), Not(HasSubstr("entry "))));
}

TEST_F(VocabularyTest, EditedByHandIsRefused) {
  const std::string text = read_file(path("a/vocabulary.tsv"));
  std::string edited = text;
  const size_t line = edited.find('\n', edited.find("</s>")) + 1;  // start of the third entry's line
  edited[line] = '#';
  write("a/vocabulary.tsv", edited);
  const Outcome o = lmx({"generate", path("a"), "--tokens", "3"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("error: [checkpoint] " + path("a") + "/vocabulary.tsv", checkpoint("a"),
                           "22 entries (SHA-256", "22 (SHA-256"));
  EXPECT_EQ(lmx({"eval", path("a")}).code, 0) << "eval must read the vocabulary of the data";
  write("a/vocabulary.tsv", text);
  EXPECT_EQ(lmx({"generate", path("a"), "--tokens", "3"}).code, 0);
}

TEST_F(VocabularyTest, MeansCarryTheirs) {
  ASSERT_EQ(lmx({"average", path("b.safetensors"), checkpoint("b", 2), checkpoint("b", 3)}).code, 0);
  EXPECT_THAT(lmx({"eval", path("a"), "--checkpoint", path("b.safetensors")}).err,
              Names("b.safetensors", "22 entries"));
  EXPECT_EQ(lmx({"eval", path("b"), "--checkpoint", path("b.safetensors")}).code, 0);
  for (const std::string& other : {checkpoint("b"), path("b.safetensors")}) {
    const Outcome o = lmx({"average", path("mean.safetensors"), checkpoint("a"), other});
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, Names("error: [average] " + checkpoint("a"), other, "of 22 (SHA-256"));
    EXPECT_FALSE(fs::exists(path("mean.safetensors")));
  }
}

TEST_F(VocabularyTest, UnrecordedIsTaken) {
  const std::string file = "/model.safetensors";
  EXPECT_EQ(lmx({"eval", path("a"), "--checkpoint", checkpoint("b") + file}).code, 2)
      << "state.json in its folder records the vocabulary";
  fs::copy_file(checkpoint("b") + file, path("old.safetensors"));
  const Outcome o = lmx({"eval", path("a"), "--checkpoint", path("old.safetensors")});
  EXPECT_EQ(o.code, 0) << o.err;
}

}  // namespace
}  // namespace lmx_test
