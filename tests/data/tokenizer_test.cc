// Tokenizers and cleaning: the rules of docs/data.md, Moses, and the preprocessing of Puri 2018.
#include "app/text/tokenizer.h"

#include <nlohmann/json.hpp>

#include "app/text/cleaner.h"
#include "app/text/moses.h"
#include "base/files.h"
#include "fixture.h"

namespace lmx::app {
namespace {

std::string join(Tokenizer& tokenizer, std::string_view line) {
  std::vector<std::string_view> words;
  EXPECT_EQ(tokenizer.split(line, words), Tokenizer::kValid);
  std::string text;
  for (const auto w : words) text += (text.empty() ? "" : "|") + std::string(w);
  return text;
}

std::string rules(std::string_view line) {
  Tokenizer tokenizer(TokenizerRules{});
  return join(tokenizer, line);
}

TEST(Tokenizer, WordsAndPunctuation) {
  EXPECT_EQ(rules("The cat sat, then left."), "the|cat|sat|,|then|left|.");
  EXPECT_EQ(rules("\"Who?!\" (he)"), "\"|who|?|!|\"|(|he|)");
  EXPECT_EQ(rules("_italic_ <unk>"), "_|italic|_|<|unk|>");
  EXPECT_EQ(rules(""), "");
  EXPECT_EQ(rules(" \t \v\f\r "), "");
  EXPECT_EQ(rules("x"), "x");
}

TEST(Tokenizer, InnerApostrophesJoinAndAreFolded) {
  EXPECT_EQ(rules("Don't don\u2019t o\u02BCclock"), "don't|don't|o'clock");
  EXPECT_EQ(rules("the dogs' 'tis rock'n'roll"), "the|dogs|'|'|tis|rock'n'roll");
  EXPECT_EQ(rules("\u2018quoted\u2019 ''"), "\u2018|quoted|\u2019|'|'");
}

TEST(Tokenizer, InnerHyphensJoin) {
  EXPECT_EQ(rules("well-known T-34 e\u2010mail no\u2011break"), "well-known|t-34|e-mail|no-break");
  EXPECT_EQ(rules("wait--what -x x- a\u2014b"), "wait|-|-|what|-|x|x|-|a|\u2014|b");
}

TEST(Tokenizer, PointsAndCommasJoinDigitsOnly) {
  EXPECT_EQ(rules("3.14 10,000.5 1,a a.1 end.Start v1.2"), "3.14|10,000.5|1|,|a|a|.|1|end|.|start|v1.2");
  EXPECT_EQ(rules("5. 5, .5"), "5|.|5|,|.|5");
}

TEST(Tokenizer, LowerCaseIsUnicode) {
  EXPECT_EQ(rules("ÄÖÜ ÉCOLE ΑΒΓ МОСКВА"), "äöü|école|αβγ|москва");
  EXPECT_EQ(rules("\u023A\u023A\u023A\u023A"), "\u2C65\u2C65\u2C65\u2C65");  // longer in lower case
  Tokenizer keep(TokenizerRules{.lower_case = false});
  EXPECT_EQ(join(keep, "The ÉCOLE"), "The|ÉCOLE");
}

TEST(Tokenizer, MarksStayWithTheirBase) {
  EXPECT_EQ(rules("cafe\u0301s"), "cafe\u0301s");
  EXPECT_EQ(rules("!\u0301a"), "!\u0301|a");
  EXPECT_EQ(rules("\u0301a b"), "\u0301a|b");
  EXPECT_EQ(rules("हिन्दी"), "हिन्दी");
}

TEST(Tokenizer, IdeographsAreWords) {
  EXPECT_EQ(rules("吾菊山翁，鹤x来"), "吾|菊|山|翁|，|鹤|x|来");
  EXPECT_EQ(rules("\U00020000\U00020001"), "\U00020000|\U00020001");
}

TEST(Tokenizer, FormatCharactersVanishAndSpacesSeparate) {
  EXPECT_EQ(rules("co\u00ADoperate"), "cooperate");
  EXPECT_EQ(rules("a\u200Bb"), "ab");
  EXPECT_EQ(rules("a\u00A0b\u3000c\u2028d\u0085e"), "a|b|c|d|e");
  EXPECT_EQ(rules(std::string_view("a\0b", 3)), "a|b");
  EXPECT_EQ(rules("😀😀"), "😀|😀");
}

TEST(Tokenizer, WhiteSpaceOnly) {
  Tokenizer tokenizer(TokenizerRules{.lower_case = true, .whitespace_only = true});
  EXPECT_EQ(join(tokenizer, " the <unk> 's N.Y. \u201CHi "), "the|<unk>|'s|n.y.|\u201Chi");
}

TEST(Tokenizer, ReportsTheFirstBadByte) {
  Tokenizer tokenizer(TokenizerRules{});
  std::vector<std::string_view> words;
  EXPECT_EQ(tokenizer.split("caf\xE9 x", words), 3u);
  EXPECT_EQ(tokenizer.split("ab\xC3", words), 2u);            // cut off
  EXPECT_EQ(tokenizer.split("\xED\xA0\x80", words), 0u);      // a surrogate
  EXPECT_EQ(tokenizer.split("a\xC0\xAF", words), 1u);         // an overlong slash
  EXPECT_EQ(tokenizer.split("\xF4\x90\x80\x80", words), 0u);  // above U+10FFFF
  Tokenizer plain(TokenizerRules{.whitespace_only = true});
  EXPECT_EQ(plain.split("ok \xFF", words), 3u);
}

TEST(Tokenizer, LongWordsAndLinesKeepTheirBytes) {
  const std::string word(1 << 20, 'q');
  EXPECT_EQ(rules(word + " " + word), word + "|" + word);
}

}  // namespace
}  // namespace lmx::app

// The Moses tokenizer and detokenizer against what sacremoses made (tools/dev/parity/moses.py).

namespace lmx_test {
namespace {

using lmx::app::moses_detokenize;
using lmx::app::MosesTokenizer;

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

// The preprocessing of Puri 2018: goldens of Python's html and re, and of unidecode (tools/dev/parity/puri_clean.py).

namespace lmx::app {
namespace {

TEST(Cleaner, EqualsPythonOnEveryGolden) {
  std::ifstream file(lmx_test::source_path("/tests/data/golden/puri_clean.json"));
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 40U);
  Cleaner cleaner(true);
  for (const auto& c : cases)
    EXPECT_EQ(cleaner.clean(c.at(0).get<std::string>()), c.at(1).get<std::string>()) << c.at(0);
}

TEST(Cleaner, NothingIsDoneUnlessAsked) {
  Cleaner cleaner(false);
  EXPECT_EQ(cleaner.clean(" <b>\xFF &amp; "), " <b>\xFF &amp; ");
}

TEST(Cleaner, WithoutAWordNothingIsLeft) {
  Cleaner cleaner(true);
  for (const char* text : {"", "  ", "<br />", "&nbsp;", "\xFF"}) EXPECT_EQ(cleaner.clean(text), "") << text;
}

TEST(Cleaner, BytesThatAreNoUtf8AreLeftOut) {
  Cleaner cleaner(true);
  EXPECT_EQ(cleaner.clean("a\xE9 b\xC3\xA9\xFF"), "\n a be ");
}

TEST(Html, TagsEndAtTheFirstBracketOfTheLine) {
  EXPECT_EQ(without_tags("a<b>c<br/>d"), "a c d");
  EXPECT_EQ(without_tags("1 < 2 and <i"), "1 < 2 and <i");
  EXPECT_EQ(without_tags("a<b\nc>d"), "a<b\nc>d");
  EXPECT_EQ(without_tags("<<b>>"), " >");
}

}  // namespace
}  // namespace lmx::app
