// The tokenizers that BLEU is counted with; each has the words that sacreBLEU's tokenizer of that name makes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

// The words of one line. REQUIRES: valid UTF-8 without line ends.
using ScoreTokenizer = std::vector<std::string> (*)(std::string_view line);

// 13a, intl, char, zh, none. UserError names the nearest one.
ScoreTokenizer find_score_tokenizer(const std::string& name);

// The rule of the paper's evaluation (Ott et al. 2018, as their script has it): a hyphen between two characters that
// are no white space becomes ` ##AT##-##AT## `. A character ends at most one compound: a-b-c is split once.
std::string split_compounds(std::string_view line);

}  // namespace lmx::data
