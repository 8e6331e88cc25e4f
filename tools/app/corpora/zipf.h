// The number of different words in N tokens of training: counted in a text, as U = a N^b (Patwary et al. 2018 find b =
// 0.64), and in a text of which only the counts of its words are known.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/drawn_text.h"
#include "lmx/data.h"

namespace lmx::app {

struct TypesAtTokens {
  int64_t tokens = 0;
  double types = 0;   // mean over the samples
  double spread = 0;  // their standard deviation
};

struct PowerLaw {
  double factor = 0, exponent = 0;  // U = factor N^exponent
  std::vector<double> residuals;    // of each point: ln U - ln(factor N^exponent)
  double rms = 0;                   // of the residuals
  double at(double tokens) const;
};

// Fits by least squares in log-log coordinates. UserError: fewer than two different N, or a value that is not positive.
PowerLaw fit_power_law(std::span<const TypesAtTokens> points);

struct ZipfOptions {
  int64_t sequence_length = 20;  // Patwary's word model
  int64_t first = 640;           // tokens of one of its ranks; each next number is twice as large
  int64_t last = 2'621'440;      // and never more than half of the available tokens
  int64_t draws = 3;
  uint64_t seed = 1;
};

// Returns the number of different ids among `tokens`.
int64_t types_in(std::span<const int32_t> tokens);

// Samples sequences as training does: at random from the whole text, without repetition within a sample. UserError: a
// text shorter than 4 x `first` tokens.
std::vector<TypesAtTokens> count_types(const TokenArray& tokens, const ZipfOptions& options);

// The words of a text of which only their counts are known.

// Reads the counts of words: one a line, alone or after the word, as in the vocab.tsv of prepared text. In the law, the
// tokens of a text are independent, and each is word w with the probability p(w) = count(w) / sum of all counts. So N
// tokens have sum over w of 1 - (1 - p(w))^N different words. Words beyond a vocabulary, which keeps the most frequent
// ones, are one word, <unk>. UserError, with file and line: not readable, a line without a count, no positive count.
WordLaw law_of_counts(const std::string& path);

}  // namespace lmx::app
