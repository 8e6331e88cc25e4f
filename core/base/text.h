// Numbers as text, and text as a terminal may show it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lmx {

// The shortest text that reads back to the same double: "0.1", "NaN", "Infinity", "-Infinity".
std::string number_text(double value);
double number_from_text(const std::string& text);  // UserError for any other text

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

}  // namespace lmx
