// Numbers as text, text as a terminal may show it, and text in columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmx {

// The shortest text that reads back to the same double: "0.1", "NaN", "Infinity", "-Infinity".
std::string number_text(double value);
double number_from_text(const std::string& text);  // UserError for any other text

// The text that std::printf() would print.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// "111,845,376"; "1.3 GB".
std::string count_text(int64_t value);
std::string bytes_text(int64_t bytes);

// The text with <U+XXXX> for each control character but line ends and tabs, and for each character that is invisible or
// looks like a blank, and with <xNN> for each byte that is not UTF-8: a difference cannot be hidden, and no terminal
// executes the text.
std::string printable(std::string_view text);

// The same for a text that has lmx's own colours ("\033[1m"), which stay. For everything that a terminal shows besides
// messages.
std::string printable_with_colours(std::string_view text);

// Decodes UTF-8 bytes to code points, one at a time.

inline constexpr size_t kValidUtf8 = std::string_view::npos;

// Stores the code point that begins at `at` in `code` and returns its number of bytes; 0 if it is not UTF-8. REQUIRES:
// at < text.size().
size_t code_point_at(std::string_view text, size_t at, char32_t& code);

// Calls take(at, code) for each code point, with the offset at which it begins. Returns the offset of the first byte
// that is not UTF-8, or kValidUtf8.
template <class Take>
size_t for_each_code_point(std::string_view text, Take&& take) {
  for (size_t at = 0; at < text.size();) {
    auto code = static_cast<char32_t>(static_cast<unsigned char>(text[at]));
    const size_t bytes = code < 0x80 ? 1 : code_point_at(text, at, code);
    if (bytes == 0) return at;
    take(at, code);
    at += bytes;
  }
  return kValidUtf8;
}

// Returns the same offset without calling a function.
size_t find_invalid_utf8(std::string_view text);

// Text in columns, for every table that lmx prints.

// Counts Unicode code points, so that text in other alphabets is aligned.
size_t width_of(std::string_view text);

// Appends spaces until `text` is `width` columns wide.
std::string padded(const std::string& text, size_t width);

// Returns the columns of the terminal at `descriptor`, or COLUMNS if this variable is set. Returns 0 (no limit) if it
// is no terminal and COLUMNS is not set.
size_t terminal_columns(int descriptor);

// Returns lines of at most `width` columns (0: no limit). Words are not split: a longer word has its own line. A
// newline in `text` ends a line. Returns at least one line.
std::vector<std::string> wrapped(std::string_view text, size_t width);
// Returns `text` with every line broken between words that has more than `width` columns (0: no limit). The rest of
// such a line is indented by two more than its beginning.
std::string folded(std::string_view text, size_t width);
// Returns the first parts of a line, which two spaces separate (or words, if it has no such parts), that fit into
// `width` columns (0: no limit).
std::string shortened(std::string_view line, size_t width);

struct TableLayout {
  size_t left = std::string::npos;  // so many columns are aligned on the left, the others on the right
  size_t gap = 2;                   // spaces between two columns
  std::vector<size_t> least = {};   // least widths of the columns; a column that is absent has none
};
// Formats each row as a line in which every column is as wide as its widest cell. Rows may have fewer cells than
// others. The lines have no trailing spaces.
std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows, const TableLayout& layout = {});

}  // namespace lmx
