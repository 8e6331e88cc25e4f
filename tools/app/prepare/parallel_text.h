// Files of parallel text before they are training data: dropping pairs that are no translations, keeping the best.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace lmx {

struct Dataset;
struct ScorePairsOptions;

// Files, directories, globs, .gz too: either `source` and `target`, line i of one translating line i of the other, or
// `tsv` with a pair a line in two columns (from 1).
struct PairTextFiles {
  std::vector<std::string> source = {}, target = {}, tsv = {};
  std::array<int64_t, 2> columns{1, 2};
};

// Where pairs are written: `source` and `target`, or `tsv`; a name that ends in .gz is compressed. The files appear
// under their names complete or not at all.
struct PairTextOutput {
  std::string source, target, tsv;
};

// Rules of Ott et al. 2018, section 4.3; words are what white space separates. 0 switches a limit off.
struct FilterRules {
  double max_ratio = 1.5;  // longer side / shorter side, in words
  int64_t max_words = 250;
  bool drop_copies = true;
  bool drop_invalid = false;  // text that is not UTF-8; otherwise it is an error
};

struct FilterCounts {
  enum Rule { kInvalid, kEmpty, kTooLong, kRatio, kCopy, kRules };
  int64_t read = 0, kept = 0;
  std::array<int64_t, kRules> dropped{};  // by the first rule, in this order, that the pair breaks
  std::array<int64_t, kRules>
      breaking{};  // all pairs that break the rule; of an invalid or empty pair no other is asked
};
const char* rule_name(FilterCounts::Rule rule);  // "empty side"

// Writes the pairs that break no rule, in their order. Memory does not grow with the text. UserError: files out of
// step, bad columns, text that is not UTF-8; RunError: the disk.
FilterCounts filter_pairs(const PairTextFiles& in, const FilterRules& rules, const PairTextOutput& out,
                          int threads = 0);

struct TopOptions {
  int64_t keep = 0;          // pairs; all where there are fewer
  std::string scores;        // a file with a line a pair, .gz too
  int64_t score_column = 1;  // of its columns, which tabs or spaces separate
};
struct TopCounts {
  int64_t read = 0, kept = 0;
  int64_t unscored = 0, kept_unscored = 0;  // pairs with a score of -inf, and how many of them were kept
  double threshold = 0;                     // the lowest score kept
};
// Writes the pairs with the highest scores, in their order; of equal scores the earlier. -inf, as score_pairs writes it
// for a pair that it could not score, is below every number. Reads the scores four times and the text once; memory does
// not grow with either. UserError also: no number, NaN, inf, not as many scores as pairs.
TopCounts keep_best_pairs(const PairTextFiles& in, const TopOptions& options, const PairTextOutput& out);

// A split's sentences as they were written, before any tokenization: pair i is pair i of the split's PairArray. Empty
// for the training split and for data that is no parallel text. UserError: the prepared directory is damaged.
struct SentencePairs {
  std::vector<std::string> source, target;
};
SentencePairs written_pairs(const Dataset& dataset, const std::string& split);  // "valid", "test"

}  // namespace lmx
