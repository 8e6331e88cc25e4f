// Texts that a run of characters reads: characters that are lost are reported once, and errors in files of texts name
// their lines.
#include <gmock/gmock.h>

#include "names.h"
#include "process/letters_fixture.h"

namespace lmx_test {
namespace {

class TextsTest : public LettersTest {
 protected:
  void SetUp() override { train("a", "abcdefghijklmnopqrst"); }
};

// One line for all texts; the most frequent characters come first.
TEST_F(TextsTest, WhatTextsHaveBesideItIsToldOnce) {
  std::string texts = "sentence\n";
  for (int i = 0; i < 30; ++i) texts += i < 20 ? "abXc\n" : i < 29 ? "YdeX\n" : "!()*+-/0\n";
  write("texts.csv", texts);
  const auto features = [&] {
    return lmx({"features", path("a"), path("texts.csv"), "--no-labels", "--out", path("f.csv")});
  };
  const Outcome o = features();
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, Names("[features]", "46 of 124 characters", "<unk>", "10 different", "'X' 29, 'Y' 9, '!' 1,"));
  EXPECT_THAT(o.err, Names(", ...\n"));
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  write("texts.csv", "sentence\nabXc\n");
  EXPECT_THAT(features().err, Names("[features]", "'X'", "<unk>"));
}

// Puri's preprocessing removes invalid bytes from data and texts, and counts them.
TEST_F(TextsTest, WhatTheCleanerLeavesOutIsTold) {
  std::string csv = "label,sentence\n";
  for (int i = 0; i < 300; ++i)
    csv += std::string(i % 2 ? "1," : "0,") + (i < 7 ? "a caf\xE9 film\n" : "a fine film\n");
  write("r.csv", csv);
  const std::vector<std::string> words{"data={name: text, tokens: chars, preprocess: puri, field: sentence, files: ['" +
                                           path("r.csv") + "'], vocab_size: 10, valid_fraction: 0.2}",
                                       "batcher.sequence_length=4"};
  const Outcome o = run("c", words);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, Names("UTF-8", "7 strings"));
  const Outcome f = lmx({"features", path("c"), path("r.csv"), "--out", path("f.csv")});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_THAT(f.err, Names("[features]", "UTF-8", "7 texts"));
}

TEST_F(TextsTest, TextsOfJsonLinesAndInvalidOnes) {
  const auto features = [&](const std::string& file, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"features", path("a"), path(file), "--out", path("f.csv")});
    return lmx(more);
  };
  write("t.csv", "label,sentence\n1,abc\n0,bcd\n");
  ASSERT_EQ(features("t.csv").code, 0);
  const std::string wanted = read_file(path("f.csv"));
  write("t.jsonl", "{\"label\": 1, \"sentence\": \"abc\"}\n\n{\"label\": \"0\", \"sentence\": \"bcd\"}\n");
  const Outcome o = features("t.jsonl");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(read_file(path("f.csv")), wanted);
  EXPECT_THAT(features("t.jsonl", {"--text-column", "text"}).err, Names("t.jsonl:1", "'text'"));
  write("none.jsonl", "\n");
  EXPECT_THAT(features("none.jsonl").err, Names("none.jsonl"));
  write("bad.csv",
        "label,sentence\n1,abc\n0,\"b\nc\"\n0,b\xFF"
        "d\n");
  const Outcome bad = features("bad.csv");
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, Names("error: [features] " + path("bad.csv") + ":5 ", "UTF-8", "byte 1"));
}

}  // namespace
}  // namespace lmx_test
