// Decodes UTF-8 bytes to code points, one at a time.
#pragma once

#include <cstddef>
#include <string_view>

namespace lmx {

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
