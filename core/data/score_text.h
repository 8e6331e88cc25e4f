// Text as scores look at it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/api.h"

namespace lmx::data::score {

constexpr size_t kAllValid = std::string_view::npos;

// Offset of the first byte that begins no code point, or kAllValid.
LMX_API size_t first_invalid_utf8(std::string_view text);
// REQUIRES: valid UTF-8.
LMX_API std::vector<int32_t> code_points(std::string_view text);
LMX_API void append_utf8(std::string& text, int32_t code_point);
LMX_API std::string lower_case(std::string_view text);

// White space of Unicode, to which the information separators U+001C to U+001F count.
LMX_API bool is_white_space(int32_t code_point);
LMX_API std::string_view trim_end(std::string_view text);  // without white space at its end
// What stands between white space, none of it empty.
LMX_API std::vector<std::string> split_words(std::string_view text);

}  // namespace lmx::data::score
