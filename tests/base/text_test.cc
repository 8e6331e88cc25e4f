// Numbers as text, foreign text on a terminal, and local time as text.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"

namespace lmx {
namespace {

TEST(Format, PrintsTextsOfAnyLength) {
  const std::string text(1000, 'x');
  EXPECT_EQ(format("%.2f s, %s, %lld", 1.5, text.c_str(), 7LL), "1.50 s, " + text + ", 7");
  EXPECT_EQ(format("100 %%"), "100 %");
}

TEST(TerminalText, LeavesTextUnchanged) {
  for (const char* text : {"a b\n\tc ~", "na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80", ""}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_with_colours(text), text);
  }
}

TEST(TerminalText, NamesControlCharacters) {
  EXPECT_EQ(printable("\x1b[31mred\x07\r\x7f"), "<U+001B>[31mred<U+0007><U+000D><U+007F>");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a<U+0000>b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "<U+009B>31m");
  // Colours are lmx's own; they neither move the cursor nor ask the terminal for anything.
  EXPECT_EQ(printable_with_colours("\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;title\x07"),
            "\x1b[1;31mred\x1b[0m <U+001B>[2J<U+001B>]0;title<U+0007>");
}

TEST(TerminalText, NamesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("a\xff\xc3"), "a<xFF><xC3>");
  EXPECT_EQ(printable("\xed\xa0\x80"), "<xED><xA0><x80>");  // half of a pair of UTF-16
  EXPECT_EQ(printable_with_colours("\xe2\x82"), "<xE2><x82>");
}

// se<U+200B>ed is not the key seed.
TEST(TerminalText, NamesInvisibleCharacters) {
  EXPECT_EQ(printable("se\xe2\x80\x8b"
                      "ed"),
            "se<U+200B>ed");
  EXPECT_EQ(printable("a\xc2\xa0"
                      "b"),
            "a<U+00A0>b");
  EXPECT_EQ(printable("\xe2\x80\xae\xe2\x81\xa6\xef\xbb\xbf\xe2\x80\xa8"), "<U+202E><U+2066><U+FEFF><U+2028>");
  EXPECT_EQ(printable("\xe3\x85\xa4\xf3\xa0\x81\xa1"), "<U+3164><U+E0061>");
  EXPECT_EQ(printable_with_colours("\x1b[1ma\xc2\xa0\x1b[0m"), "\x1b[1ma<U+00A0>\x1b[0m");
}

// Local time as text.

class Clock : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "XYZ-2", 1);  // two hours ahead
    tzset();
  }
  void TearDown() override {
    setenv("TZ", "UTC0", 1);
    tzset();
  }
};

TEST_F(Clock, IsLocal) {
  EXPECT_EQ(local_time("%Y-%m-%dT%H:%M:%S%z", 0), "1970-01-01T02:00:00+0200");
}

TEST_F(Clock, WhatDoesNotFitIsNothing) {
  EXPECT_EQ(local_time("", 0), "");
  EXPECT_EQ(local_time(std::string(300, 'x').c_str(), 0), "");
  EXPECT_EQ(local_time(std::string(255, 'x').c_str(), 0), std::string(255, 'x'));
}

}  // namespace
}  // namespace lmx
