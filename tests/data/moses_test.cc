// The Moses tokenizer and detokenizer against what sacremoses made (tools/parity/moses.py).
#include "app/text/moses.h"

#include "base/files.h"
#include "fixture.h"
#include "paths.h"

namespace lmx_test {
namespace {

using lmx::data::moses_detokenize;
using lmx::data::MosesTokenizer;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at)
      parts.emplace_back();
    else
      parts.back().push_back(c);
  }
  return parts;
}

// `\t` and `\\` of a golden's column.
std::string plain(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\')
      out.push_back(text[i]);
    else
      out.push_back(text[++i] == 't' ? '\t' : '\\');
  }
  return out;
}

std::vector<std::vector<std::string>> golden(const std::string& name) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : split(lmx::read_file(source_path("/tests/data/") + name), '\n'))
    if (!line.empty() && !line.starts_with("#")) rows.push_back(split(line, '\t'));
  return rows;
}

TEST(Moses, EqualsSacremosesOnTrickyLines) {
  const auto rows = golden("moses_cases.tsv");
  ASSERT_GT(rows.size(), 150u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 6u) << row[0];
    const std::string line = plain(row[2]), tokens = plain(row[3]);
    const bool all = row[1] == "ae";
    const MosesTokenizer tokenizer({row[0], all, all});
    EXPECT_EQ(tokenizer.tokenize(line), tokens) << row[0] << " " << row[1] << " '" << line << "'";
    EXPECT_EQ(moses_detokenize(tokens, row[0]), plain(row[4])) << row[0] << " '" << tokens << "'";
    if (all) continue;
    EXPECT_EQ(moses_detokenize(line, row[0]), plain(row[5])) << row[0] << " as tokens: '" << line << "'";
  }
}

// Every line of both languages and all splits.
TEST_F(DataTest, MosesEqualsSacremosesOnMulti30k) {
  const auto rows = golden("moses_multi30k.tsv");
  ASSERT_EQ(rows.size(), 8u);
  const char* data = std::getenv("LMX_DATA_DIR");
  const std::string folder = data ? std::string(data) + "/multi30k/" : "";
  if (!std::filesystem::exists(folder + "train.en")) GTEST_SKIP() << "no Multi30k below LMX_DATA_DIR";
  for (const auto& row : rows) {
    const std::string language = row[0].substr(row[0].size() - 2);
    const MosesTokenizer tokenizer({language, false, false});
    std::string tokens, texts;
    const std::string all = lmx::read_file(folder + row[0]);
    std::vector<std::string> lines = split(all, '\n');
    if (lines.back().empty()) lines.pop_back();
    for (const std::string& line : lines) {
      const std::string words = tokenizer.tokenize(line);
      tokens += words + "\n";
      texts += moses_detokenize(words, language) + "\n";
    }
    EXPECT_EQ(lmx::sha256_of_file(write("tokens", tokens)), row[1]) << row[0];
    EXPECT_EQ(lmx::sha256_of_file(write("texts", texts)), row[2]) << row[0];
  }
}

// What the rules cost must not grow faster than the line.
TEST(Moses, AVeryLongLineIsALine) {
  std::string line;
  for (int i = 0; i < 100'000; ++i) line += "it's a. ";
  const std::string words = MosesTokenizer({"en", true, true}).tokenize(line);
  EXPECT_TRUE(words.starts_with("it &apos;s a. it &apos;s a."));
  EXPECT_TRUE(moses_detokenize(words, "en").ends_with("it's a."));
}

}  // namespace
}  // namespace lmx_test
