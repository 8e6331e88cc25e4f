// Tokenizer and detokenizer of the Moses toolkit for English, German and French, equal to those of sacremoses.
//
// The rules are those of Koehn et al. 2007 (tokenizer.perl, detokenizer.perl) in the order of sacremoses 0.2. Each is
// written as one scan over the code points. The results equal sacremoses on tests/data/moses_*.tsv.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::app {

struct MosesOptions {
  std::string language = "en";     // other languages than en, de and fr use only the general rules
  bool aggressive_dashes = false;  // "well-known" becomes "well @-@ known"
  bool escape = false;             // replace & | < > ' " [ ] by the entities that Moses' decoder reads
};

// Thread-safe.
class MosesTokenizer {
 public:
  explicit MosesTokenizer(MosesOptions options);
  // Returns the tokens, separated by one space. REQUIRES: `line` is UTF-8.
  std::string tokenize(std::string_view line) const;

 private:
  MosesOptions options_;
};

// Returns the text of tokens that are separated by white space; replaces entities by their characters. REQUIRES:
// `tokens` is UTF-8.
std::string moses_detokenize(std::string_view tokens, const std::string& language);

}  // namespace lmx::app

// Character classes of the Moses rules, and the words whose period does not end a sentence.

namespace lmx::app::moses {

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

// Reduces white space to single spaces, removes it at the ends, and removes other control characters.
std::u32string squeezed(std::u32string_view text);
std::vector<std::u32string_view> words_of(std::u32string_view text);  // the parts between white space

struct Entity {
  std::u32string_view name;
  char32_t character;
};
// "&bar;", "&bra;" and "&ket;" are from old versions of Moses; the last name of a character is the one that is written.
inline constexpr Entity kEntities[] = {{U"&bar;", '|'}, {U"&#124;", '|'}, {U"&lt;", '<'},   {U"&gt;", '>'},
                                       {U"&bra;", '['}, {U"&ket;", ']'},  {U"&quot;", '"'}, {U"&apos;", '\''},
                                       {U"&#91;", '['}, {U"&#93;", ']'},  {U"&amp;", '&'}};

}  // namespace lmx::app::moses
