// Tokenizer and detokenizer of the Moses toolkit for English, German and French, as sacremoses has them.
//
// The rules are those of Koehn et al. 2007 (tokenizer.perl, detokenizer.perl) in the order in which sacremoses 0.2
// applies them, each written as one scan over the code points. Equal to sacremoses on tests/data/moses_*.tsv.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

struct MosesOptions {
  std::string language = "en";     // another than en, de and fr gets the rules that have no language
  bool aggressive_dashes = false;  // "well-known" becomes "well @-@ known"
  bool escape = false;             // & | < > ' " [ ] become the entities that Moses' decoder reads
};

// Thread-safe.
class MosesTokenizer {
 public:
  explicit MosesTokenizer(MosesOptions options);
  // The tokens with one space between them. REQUIRES: `line` is UTF-8.
  std::string tokenize(std::string_view line) const;

 private:
  MosesOptions options_;
};

// The text of tokens with white space between them; entities are read back. REQUIRES: `tokens` is UTF-8.
std::string moses_detokenize(std::string_view tokens, const std::string& language);

}  // namespace lmx::data
