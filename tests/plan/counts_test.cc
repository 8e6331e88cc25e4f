// Given counts of words as a law of the number of different words.
#include "app/memory/word_counts.h"

#include <gmock/gmock.h>

#include <cmath>

#include "lmx/error.h"
#include "plan_command.h"

namespace lmx_test {
namespace {

class PlanCounts : public PlanCommand {
 protected:
  std::string refused(const std::string& text) const {
    write("c.txt", text);
    try {
      lmx::law_of_counts(path("c.txt"));
    } catch (const lmx::UserError& e) {
      return e.what();
    }
    return "";
  }
};

TEST_F(PlanCounts, AreTheExpectedNumberOfDifferentWords) {
  std::string text;
  for (int word = 0; word < 400; ++word) text += lmx::str("w", word, "\t", word < 200 ? 3 : 1, "\n");
  write("v.tsv", text);
  const lmx::WordLaw law = lmx::law_of_counts(path("v.tsv"));
  // Probabilities 3 / 800 and 1 / 800.
  const auto words = [](double n) {
    return 200 * (1 - std::pow(1 - 0.00375, n)) + 200 * (1 - std::pow(1 - 0.00125, n));
  };
  EXPECT_NEAR(law(500, 1000), words(500), 0.51);
  EXPECT_EQ(law(1, 1000), 1);
  EXPECT_EQ(law(100'000, 1000), 400);
  EXPECT_EQ(law(100'000, 200), 200);
  // A vocabulary of 101 entries has the 100 most frequent words, and the others as <unk>, which always occurs here.
  EXPECT_NEAR(law(500, 101), 100 * (1 - std::pow(1 - 0.00375, 500)) + 1, 0.51);
}

TEST_F(PlanCounts, TheOrderOfTheFileDoesNotMatter) {
  write("a.txt", "1\n5\n2\r\n\n");
  write("b.txt", "the 5\nof 2\nand 1\n");
  for (const int64_t vocabulary : {2, 3, 9})
    EXPECT_EQ(lmx::law_of_counts(path("a.txt"))(2, vocabulary), lmx::law_of_counts(path("b.txt"))(2, vocabulary));
}

TEST_F(PlanCounts, WrongFilesNameTheLine) {
  EXPECT_THAT(refused("the 5\nof two\n"), Names("c.txt:2", "'two'"));
  EXPECT_THAT(refused("the -5\n"), Names("c.txt:1", "'-5'"));
  EXPECT_THAT(refused("the nan\n"), Names("c.txt:1"));
  EXPECT_THAT(refused("0\n"), Names("c.txt", "above 0"));
  EXPECT_THAT(refused(""), Names("c.txt", "above 0"));
  expect_refused({"--machine", "h100_node", "--counts", path("none.tsv")}, {"--counts", "none.tsv"});
  write("c.txt", "1\n");
  expect_refused({"--machine", "h100_node", "--counts", path("c.txt"), "--types", "1,1"}, {"--counts", "--types"});
}

// Five words that all occur in each step: the rows of both tables are known exactly.
TEST_F(PlanCounts, SetTheBytesOfAPlan) {
  write("five.txt", "1\n1\n1\n1\n1\n");
  std::vector<std::string> words{"--machine",   "h100_node",        "--ranks",      "2",
                                 "sync=unique", "batch.global=400", "batch.micro=0"};
  std::vector<std::string> law = words;
  law.insert(law.end(), {"--types", "5.01,0.0000001"});
  words.insert(words.end(), {"--counts", path("five.txt")});
  EXPECT_EQ(rows(path("tiny.yaml"), words)[0]["sent_bytes"], rows(path("tiny.yaml"), law)[0]["sent_bytes"]);
}

}  // namespace
}  // namespace lmx_test
