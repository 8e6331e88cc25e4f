// Splits lines of UTF-8 text into words or characters; docs/data.md states the rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmx::app {

enum class Unit { word, character, byte, subword };
// Returns the unit for `data.tokens`: words, chars, bytes or subwords.
inline Unit unit_of_tokens(std::string_view tokens) {
  if (tokens == "subwords") return Unit::subword;
  return tokens == "bytes" ? Unit::byte : tokens == "chars" ? Unit::character : Unit::word;
}

struct TokenizerRules {
  bool lower_case = true;
  bool whitespace_only = false;  // the text is already tokenized: split only at white space
  Unit unit = Unit::word;
};

// Contains a buffer, so each thread needs its own object.
class Tokenizer {
 public:
  static constexpr size_t kValid = std::string_view::npos;
  explicit Tokenizer(TokenizerRules rules) : rules_(rules) {}
  // Splits `line` (without line end) into words or characters and stores them in `words`; they stay valid until the
  // next call. A line end inside a string (of a CSV field) separates words; as a character it becomes `</s>`. Returns
  // the offset of the first byte that is not UTF-8, or kValid. REQUIRES: the unit is word or character.
  size_t split(std::string_view line, std::vector<std::string_view>& words);

 private:
  TokenizerRules rules_;
  std::string buffer_;
};

}  // namespace lmx::app
