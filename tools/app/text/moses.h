// Tokenizer and detokenizer of the Moses toolkit for English, German and French, equal to those of sacremoses.
//
// The rules are those of Koehn et al. 2007 (tokenizer.perl, detokenizer.perl) in the order of sacremoses 0.2. Each is
// written as one scan over the code points. The results equal sacremoses on tests/data/moses_*.tsv.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

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

}  // namespace lmx::data
