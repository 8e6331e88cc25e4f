// A terminal is sent no control character but line feed and tab.
#include "app/print/terminal_text.h"

#include <gtest/gtest.h>

namespace lmx {
namespace {

TEST(TerminalText, LeavesTextUnchanged) {
  EXPECT_EQ(terminal_text("a b\n\tc ~"), "a b\n\tc ~");
  EXPECT_EQ(terminal_text("naïve 日本"), "naïve 日本");
  EXPECT_EQ(terminal_text(""), "");
}

TEST(TerminalText, EscapesControlCharacters) {
  EXPECT_EQ(terminal_text("\x1b[31mred\x07\r\x7f"), "\\x1b[31mred\\x07\\x0d\\x7f");
  EXPECT_EQ(terminal_text(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(terminal_text("\xc2\x9b"
                          "31m"),
            "\\xc2\\x9b31m");  // U+009B begins a control sequence as ESC [ does
}

TEST(TerminalText, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(terminal_text("\x9b"
                          "1m\xff\xc3"),
            "\\x9b1m\\xff\\xc3");
}

}  // namespace
}  // namespace lmx
