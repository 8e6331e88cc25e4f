// Scores of translations against references: BLEU as multi-bleu and sacreBLEU count it, and chrF.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lmx {

using Lines = std::vector<std::string>;  // a sentence each, UTF-8, without line ends

// The lines of a file (`-`: standard input; .gz is decompressed). UserError names the line and byte that is no UTF-8.
Lines read_lines(const std::string& path);

struct BleuOptions {
  std::string tokenizer = "13a";       // 13a, intl, char, zh, none (words stand between white space)
  std::string smoothing = "exp";       // of n-grams without a match: exp, floor, add-k, none
  std::optional<double> smooth_value;  // of floor (0.1) and add-k (1)
  bool lower_case = false;
  bool effective_order = false;  // stop at the longest n-gram that the hypothesis has: for single sentences
  bool split_compounds = false;  // left-right becomes left ##AT##-##AT## right, in hypothesis and references
};

// Papineni et al. 2002, over a whole corpus, n-grams up to 4: 100 bp exp(mean of log precisions), where
// bp = exp(1 - reference length / hypothesis length) for shorter hypotheses; of several references the nearest in
// length counts, the shorter one of two.
struct BleuScore {
  double score = 0;                           // 0 to 100
  std::array<double, 4> precisions{};         // 0 to 100
  std::array<double, 4> matches{}, ngrams{};  // of the hypothesis; add-k smoothing is in them
  double brevity_penalty = 0;
  int64_t hypothesis_length = 0, reference_length = 0;  // words
};

// `references[r]` holds one line for each of the hypothesis. UserError: no reference, no lines, different line counts,
// an unknown tokenizer or smoothing.
BleuScore bleu(const Lines& hypothesis, std::span<const Lines> references, const BleuOptions& options = {});
// What multi-bleu.perl prints of tokenized text: words as they stand, no smoothing.
BleuOptions multi_bleu_options(bool lower_case = false, bool split_compounds = false);
// nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:lmx-0.2.0: sacreBLEU's fields, lmx's version.
std::string bleu_signature(const BleuOptions& options, size_t references);
// "38.20 69.1/44.9/31.0/21.8 (BP = 1.000 ratio = 1.004 hyp_len = 61543 ref_len = 61287)", as sacreBLEU prints it.
std::string bleu_text(const BleuScore& score);
// "BLEU = 38.20, 69.1/44.9/31.0/21.8 (BP=1.000, ratio=1.004, hyp_len=61543, ref_len=61287)", as multi-bleu prints it.
std::string multi_bleu_text(const BleuScore& score);

struct ChrfOptions {
  int64_t char_order = 6;
  int64_t word_order = 0;  // 2: chrF++
  double beta = 2;         // weight of recall
  bool lower_case = false;
};
// Popović 2015, 2017, 0 to 100: F-beta of mean precision and recall over the orders of n-grams, as sacreBLEU 2 counts
// them; of several references the best one of each sentence. Errors as of bleu().
double chrf(const Lines& hypothesis, std::span<const Lines> references, const ChrfOptions& options = {});
std::string chrf_signature(const ChrfOptions& options, size_t references);
// "chrF2", "chrF2++".
std::string chrf_name(const ChrfOptions& options);

}  // namespace lmx
