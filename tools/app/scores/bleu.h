// Scores of translations against references: BLEU, with the counting rules of multi-bleu and sacreBLEU, and chrF; and
// the tokenizers and counts of n-grams that they use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/text/utf8.h"

namespace lmx::app {

struct BleuOptions {
  std::string tokenizer = "13a";       // 13a, intl, char, zh, none (words are separated by white space)
  std::string smoothing = "exp";       // for n-grams without a match: exp, floor, add-k, none
  std::optional<double> smooth_value;  // of floor (0.1) and add-k (1)
  bool lower_case = false;
  bool effective_order = false;  // stop at the longest n-gram of the hypothesis: for single sentences
  bool split_compounds = false;  // left-right becomes left ##AT##-##AT## right, in hypothesis and references
};

// The names that BleuOptions::smoothing may have.
const std::vector<std::string>& bleu_smoothings();

// Papineni et al. 2002, over a whole corpus, with n-grams up to 4: 100 bp exp(mean of log precisions). bp = exp(1 -
// reference length / hypothesis length) if the hypothesis is shorter, otherwise 1. Of several references, the one with
// the nearest length counts; of two equally near ones, the shorter.
struct BleuScore {
  double score = 0;                           // 0 to 100
  std::array<double, 4> precisions{};         // 0 to 100
  std::array<double, 4> matches{}, ngrams{};  // of the hypothesis; including add-k smoothing
  double brevity_penalty = 0;
  int64_t hypothesis_length = 0, reference_length = 0;  // words
};

// `references[r]` contains one line for each line of the hypothesis. UserError: no reference, no lines, different line
// counts, an unknown tokenizer or smoothing.
BleuScore bleu(const Lines& hypothesis, std::span<const Lines> references, const BleuOptions& options = {});
// Returns the options with which bleu() gives the score of multi-bleu.perl for tokenized text: unchanged words, no
// smoothing.
BleuOptions multi_bleu_options(bool lower_case = false, bool split_compounds = false);
// Returns, for example, nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:lmx-0.2.0: sacreBLEU's fields, lmx's
// version.
std::string bleu_signature(const BleuOptions& options, size_t references);
// Formats like sacreBLEU: "38.20 69.1/44.9/31.0/21.8 (BP = 1.000 ratio = 1.004 hyp_len = 61543 ref_len = 61287)".
std::string bleu_text(const BleuScore& score);
// Formats like multi-bleu: "BLEU = 38.20, 69.1/44.9/31.0/21.8 (BP=1.000, ratio=1.004, hyp_len=61543, ref_len=61287)".
std::string multi_bleu_text(const BleuScore& score);

struct ChrfOptions {
  int64_t char_order = 6;
  int64_t word_order = 0;  // 2: chrF++
  double beta = 2;         // weight of recall
  bool lower_case = false;
};
// Returns chrF (Popović 2015, 2017), 0 to 100: F-beta of mean precision and recall over the orders of n-grams, with
// sacreBLEU 2's counting rules. Of several references, the best one of each sentence counts. UserError: as bleu().
double chrf(const Lines& hypothesis, std::span<const Lines> references, const ChrfOptions& options = {});

// Counts of the n-grams of one sentence.

struct NGram {
  static constexpr size_t kLongest = 6;
  std::array<int32_t, kLongest> ids{};  // padded with zeros
  int64_t count = 0;
};
using NGrams = std::vector<NGram>;  // in ascending order of ids, each once

// Returns the n-grams of `ids` with n tokens each. REQUIRES: 1 <= n <= kLongest.
NGrams count_ngrams(std::span<const int32_t> ids, size_t n);
// Returns, for each n-gram in either, the larger count.
NGrams larger_counts(const NGrams& a, const NGrams& b);
// total: the sum of counts; shared: the sum of the smaller counts of n-grams in both.
int64_t total(const NGrams& a);
int64_t shared(const NGrams& a, const NGrams& b);

// The checks of lines that all scores share.

// UserError: no reference, no lines, different line counts.
void check_score_lines(const Lines& hypothesis, std::span<const Lines> references);

// The tokenizers of BLEU. Each gives the same words as sacreBLEU's tokenizer of the same name.

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

}  // namespace lmx::app
