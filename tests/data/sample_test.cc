// The length of a text that is not prepared, from a sample of it.
#include "app/datasets/sample.h"

#include <gtest/gtest.h>

#include <fstream>

#include "temp_folder.h"

namespace lmx_test {
namespace {

class SampledLength : public testing::Test {
 protected:
  // Writes `lines` copies of a line. Returns the path.
  std::string write(const std::string& name, const std::string& line, int64_t lines) const {
    std::ofstream file(folder_.path(name), std::ios::binary);
    for (int64_t i = 0; i < lines; ++i) file << line << "\n";
    return folder_.path(name);
  }
  static double of(const std::string& yaml) {
    const auto tokens = lmx::sampled_train_tokens(lmx::parse_yaml(yaml, "data"));
    return tokens ? static_cast<double>(*tokens) : -1;
  }

  const TempFolder folder_;
};

TEST_F(SampledLength, OfTextInItsUnit) {
  // 8 words and </s>; 2.6 MB and 5.2 MB, so that only a part of each is read.
  const std::string a = write("a.txt", "one two three four five six seven eight", 65'000),
                    b = write("b.txt", "one two three four five six seven eight", 130'000);
  const std::string files = "files: ['" + a + "', '" + b + "'], valid_fraction: 0, ";
  EXPECT_NEAR(of("{name: text, " + files + "vocab_size: 100}"), 9.0 * 195'000, 0.01 * 9 * 195'000);
  EXPECT_NEAR(of("{name: text, " + files + "vocab_size: 100, train_fraction: 0.25}"), 9.0 * 195'000 / 4,
              0.05 * 9 * 195'000 / 4);
  EXPECT_NEAR(of("{name: text, tokens: chars, " + files + "vocab_size: 20}"), 40.0 * 195'000, 0.01 * 40 * 195'000);
}

TEST_F(SampledLength, OfPairs) {
  const std::string source = write("a.en", "a short sentence of the source", 60'000),
                    target = write("a.de", "a target sentence of 40 bytes, really...", 60'000);
  const std::string data =
      "name: parallel, source_language: en, target_language: de, vocab_size: 1000, source_files: ['" + source +
      "'], target_files: ['" + target + "']";
  EXPECT_NEAR(of("{" + data + "}"), 60'000 * (41.0 / 4 + 1), 1000);
  EXPECT_NEAR(of("{" + data + ", pairs: [1, 5000]}"), 5000 * (41.0 / 4 + 1), 100);
}

TEST_F(SampledLength, IsNotKnownWithoutPlainFiles) {
  EXPECT_EQ(of("{name: text, files: ['" + folder_.path("none.txt") + "'], vocab_size: 100}"), -1);
  write("a.txt.gz", "not a gzip file", 10);
  EXPECT_EQ(of("{name: text, files: ['" + folder_.path("a.txt.gz") + "'], vocab_size: 100}"), -1);
}

}  // namespace
}  // namespace lmx_test
