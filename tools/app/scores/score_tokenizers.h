// The tokenizers of BLEU. Each gives the same words as sacreBLEU's tokenizer of the same name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

// Returns the words of one line. REQUIRES: valid UTF-8 without line ends.
using ScoreTokenizer = std::vector<std::string> (*)(std::string_view line);

// Returns the names of all tokenizers: 13a, intl, char, zh, none.
std::vector<std::string> score_tokenizer_names();
// Returns the tokenizer of that name. UserError: another name; the message suggests the nearest.
ScoreTokenizer find_score_tokenizer(const std::string& name);

// Applies the rule of the paper's evaluation (Ott et al. 2018, according to their script): a hyphen between two
// characters that are not white space becomes ` ##AT##-##AT## `. A character ends at most one compound: a-b-c is split
// once.
std::string split_compounds(std::string_view line);

}  // namespace lmx::data
