// Character classes of the Moses rules, and the words whose period does not end a sentence.
#pragma once

#include <string>
#include <string_view>

namespace lmx::data::moses {

// Represents one period of a run of periods while the rules are applied. It is not a code point, so no text contains
// it.
inline constexpr char32_t kDotOfRun = 0x110000;

bool is_alpha(char32_t c);   // letters, numbers of category Nl, vowel signs
bool is_alnum(char32_t c);   // is_alpha, and decimal digits
bool is_number(char32_t c);  // of any kind: digits, fractions, Roman numerals
bool is_lower(char32_t c);
bool is_currency(char32_t c);
bool is_cjk(char32_t c);  // characters that the detokenizer writes without spaces

// Returns whether a period after `word` belongs to it: "Dr", "bzw", and single capitals.
bool is_nonbreaking(std::string_view language, std::string_view word);
// The same if a number follows: "No. 5".
bool is_nonbreaking_before_number(std::string_view language, std::string_view word);

}  // namespace lmx::data::moses
