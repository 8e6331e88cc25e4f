// The preprocessing of Puri 2018: goldens of Python's html and re, and of unidecode (tools/parity/puri_clean.py).
#include "app/text/cleaner.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "paths.h"

namespace lmx::data {
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
}  // namespace lmx::data
