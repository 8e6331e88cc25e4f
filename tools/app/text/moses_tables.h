// What the Moses rules know of characters and of words that a point does not end.
#pragma once

#include <string>
#include <string_view>

namespace lmx::data::moses {

// Stands for one point of a run of points while the rules work: no code point, so that no text holds it.
inline constexpr char32_t kDotOfRun = 0x110000;

bool is_alpha(char32_t c);   // letters, numbers that are letters, vowel signs
bool is_alnum(char32_t c);   // and decimal digits
bool is_number(char32_t c);  // of any kind: digits, fractions, Roman numerals
bool is_lower(char32_t c);
bool is_currency(char32_t c);
bool is_cjk(char32_t c);  // what the detokenizer writes without spaces

// A point after `word` belongs to it: "Dr", "bzw"; single capitals.
bool is_nonbreaking(std::string_view language, std::string_view word);
// The same, where a number follows: "No. 5".
bool is_nonbreaking_before_number(std::string_view language, std::string_view word);

}  // namespace lmx::data::moses
