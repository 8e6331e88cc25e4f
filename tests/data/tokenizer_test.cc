// The tokenizer's rules as docs/data.md states them.
#include "app/text/tokenizer.h"

#include <gtest/gtest.h>

namespace lmx::data {
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
}  // namespace lmx::data
