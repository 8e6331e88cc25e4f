// Converts UTF-8 to code points and back, and reads text line by line; defines the message for text that is not UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/text.h"

namespace lmx::app {

// Appends the code points of `text` to `out`. Returns the offset of the first byte that is not UTF-8, or kValidUtf8.
size_t decode_utf8(std::string_view text, std::u32string& out);
void append_utf8(std::string& out, char32_t code);

// White space as in Python's str.split(): Zs, Zl, Zp and the controls that separate lines, fields or words.
constexpr bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Unicode's general categories, as far as tokenizers distinguish them.
enum class Category : uint8_t {
  letter,          // Lu, Lt, Lm, Lo
  small_letter,    // Ll
  letter_number,   // Nl: Roman numerals
  digit,           // Nd
  other_number,    // No
  mark,            // Mn, Mc
  enclosing_mark,  // Me
  space,           // Zs, Zl, Zp
  control,         // Cc
  format,          // Cf
  punctuation,     // P*
  currency,        // Sc
  symbol,          // Sm, Sk, So
  other
};
Category category_of(char32_t c);

// The functions below REQUIRE valid UTF-8.
std::u32string code_points(std::string_view text);
// Whether the character is composed (NFC), and is never composed with the one before it. False for some characters of
// which both are true.
constexpr bool begins_composition(char32_t c) {
  return c < 0x300 || (c >= 0x400 && c < 0x483) || (c >= 0x2010 && c < 0x2028) || (c >= 0x3001 && c < 0x302A) ||
         (c >= 0x3041 && c < 0x3097) || (c >= 0x30A1 && c < 0x30FB) || (c >= 0x3400 && c < 0xA000) ||
         (c >= 0xAC00 && c < 0xD7A4) || (c >= 0xFF01 && c < 0xFF61);
}
// The text in the normalisation form NFC: `text`, or `memory`, which then has the composed text.
std::string_view compose_characters(std::string_view text, std::string& memory);
std::string lower_case(std::string_view text);                // character by character
std::string_view trim_end(std::string_view text);             // without white space at its end
std::vector<std::string> split_words(std::string_view text);  // the non-empty parts between white space
// The length of the longest start of `text` that has at most `most` bytes and ends between characters.
size_t whole_characters(std::string_view text, size_t most);

// Throws the UserError for the byte at `at` of `line`. `line` is line `number` (1-based) of the file and begins at
// `offset` in the (decompressed) file.
[[noreturn]] void refuse_invalid_utf8(const std::string& path, int64_t number, int64_t offset, std::string_view line,
                                      size_t at);

// Reads text files and standard input line by line.

using Lines = std::vector<std::string>;  // one sentence per element, UTF-8, without line ends

// Returns the lines of a file (`-`: standard input; gzip and zstd are decompressed). UserError: invalid UTF-8; the
// message names the line and byte.
Lines read_lines(const std::string& path);

// A small compressed file can contain gigabytes without a line end, which no memory can hold.
inline constexpr size_t kLongestLine = 64 << 20;
[[noreturn]] void refuse_long_line(const std::string& name, int64_t line);  // UserError: name:line: ...

class LineReader {
 public:
  // `-`: standard input; gzip and zstd are decompressed.
  explicit LineReader(const std::string& path, bool any_bytes = false);
  // Returns the next line without its end (\n or \r\n); nullopt after the last one. Does not wait for more than a line
  // of a terminal or pipe. UserError: invalid UTF-8, unless `any_bytes` is set; the message names the line and byte.
  std::optional<std::string> next();

 private:
  std::string name_;
  InputFile file_;
  bool any_bytes_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  int64_t lines_ = 0, offset_ = 0;  // returned so far; their bytes
};

}  // namespace lmx::app
