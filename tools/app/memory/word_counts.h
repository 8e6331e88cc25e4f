// The words of a text of which only their counts are known.
#pragma once

#include <string>

#include "data/drawn_text.h"

namespace lmx {

// Reads the counts of words: one a line, alone or after the word, as in the vocab.tsv of prepared text. In the law, the
// tokens of a text are independent, and each is word w with the probability p(w) = count(w) / sum of all counts. So N
// tokens have sum over w of 1 - (1 - p(w))^N different words. Words beyond a vocabulary, which keeps the most frequent
// ones, are one word, <unk>. UserError, with file and line: not readable, a line without a count, no positive count.
data::WordLaw law_of_counts(const std::string& path);

}  // namespace lmx
