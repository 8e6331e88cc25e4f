// Given counts of words as a law of words.
#include "app/corpora/zipf.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lmx/error.h"
#include "plan_command.h"

namespace lmx_test {
namespace {

class PlanCounts : public PlanCommand {
 protected:
  std::string refused(const std::string& text) const {
    write("c.txt", text);
    return user_error([&] { lmx::app::law_of_counts(path("c.txt")); });
  }
};

TEST_F(PlanCounts, AreTheProbabilitiesOfWords) {
  std::string text;
  for (int word = 0; word < 400; ++word) text += lmx::str("w", word, "\t", word < 200 ? 3 : 1, "\n");
  write("v.tsv", text);
  const lmx::WordLaw law = lmx::app::law_of_counts(path("v.tsv"));
  std::vector<double> all(400, 3.0 / 800);
  std::fill(all.begin() + 200, all.end(), 1.0 / 800);
  EXPECT_THAT(law.probabilities(1000, 500), testing::Pointwise(testing::DoubleEq(), all));
  // A vocabulary of 101 entries has the 100 most frequent words, and the others as <unk>.
  std::vector<double> some(101, 3.0 / 800);
  some.back() = 500.0 / 800;
  EXPECT_THAT(law.probabilities(101, 500), testing::Pointwise(testing::DoubleNear(1e-12), some));
}

TEST_F(PlanCounts, TheOrderOfTheFileDoesNotMatter) {
  write("a.txt", "1\n5\n2\r\n\n");
  write("b.txt", "the 5\nof 2\nand 1\n");
  for (const int64_t vocabulary : {2, 3, 9})
    EXPECT_EQ(lmx::app::law_of_counts(path("a.txt")).probabilities(vocabulary, 2),
              lmx::app::law_of_counts(path("b.txt")).probabilities(vocabulary, 2));
}

// All of a text that ranks read, and the part of one of them. A part has more different words than the law says,
// because a vocabulary has an end.
TEST(DrawnWords, HaveTheTypesOfTheirLaw) {
  struct Law {
    double factor, exponent;
  };
  for (const auto& [factor, exponent] : {Law{8.17, 0.64}, Law{30, 0.4}}) {
    const auto types = [&](double n) { return std::min(factor * std::pow(n, exponent), 100'000.0); };
    const lmx::WordLaw law = lmx::WordLaw::of_types("law", types);
    for (const int64_t ranks : {1, 8, 128}) {
      constexpr int64_t kShare = 2560;
      const lmx::DrawnWords words(law, 100'000, ranks * kShare);
      std::set<int32_t> own, all;
      for (int64_t r = 0; r < ranks; ++r) {
        const std::vector<int32_t> share = words.draw(static_cast<uint64_t>(r + 1), kShare);
        if (r == 0) own.insert(share.begin(), share.end());
        all.insert(share.begin(), share.end());
      }
      const double wanted = types(static_cast<double>(ranks * kShare)), part = types(kShare);
      EXPECT_NEAR(static_cast<double>(all.size()), wanted, 0.03 * wanted) << factor << " " << exponent << " " << ranks;
      EXPECT_NEAR(static_cast<double>(own.size()), part, 0.12 * part) << factor << " " << exponent << " " << ranks;
    }
  }
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
  Words words{"--machine", "h100_node", "--ranks", "2", "sync=unique", "batch.global=400", "batch.micro=0"};
  Words law = words;
  law.insert(law.end(), {"--types", "5.01,0.0000001"});
  words.insert(words.end(), {"--counts", path("five.txt")});
  EXPECT_EQ(rows(path("tiny.yaml"), words)[0]["sent_bytes"], rows(path("tiny.yaml"), law)[0]["sent_bytes"]);
}

}  // namespace
}  // namespace lmx_test
