// Operations on files of parallel text before they become training data: filter noisy pairs, keep the best pairs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lmx::app {

struct ScorePairsOptions;

// Files, directories or globs; .gz and .zst files are possible, too. Either `source` and `target`, where line i of one
// translates line i of the other, or `tsv` with one pair per line in two columns (counted from 1).
struct PairTextFiles {
  std::vector<std::string> source = {}, target = {}, tsv = {};
  std::array<int64_t, 2> columns{1, 2};
};

// Output files for pairs: `source` and `target`, or `tsv`. A file whose name ends in .gz is compressed. The files
// appear under their names only when they are complete.
struct PairTextOutput {
  std::string source, target, tsv;
};

// Rules of Ott et al. 2018, section 4.3. White space separates words. 0 disables a limit.
struct FilterRules {
  double max_ratio = 1.5;  // longer side / shorter side, in words
  int64_t max_words = 250;
  bool drop_copies = true;
  bool drop_invalid = false;  // text that is not UTF-8; otherwise it is an error
};

struct FilterCounts {
  enum Rule { kInvalid, kEmpty, kTooLong, kRatio, kCopy, kRules };
  int64_t read = 0, kept = 0;
  std::array<int64_t, kRules> dropped{};  // counted for the first rule, in this order, that the pair breaks
  std::array<int64_t, kRules>
      breaking{};  // counts every broken rule of a pair; an invalid or empty pair is not checked further
};
const char* rule_name(FilterCounts::Rule rule);  // "empty side"

// Writes the pairs that break no rule, in their order. Memory does not grow with the text. UserError: files with
// different numbers of lines, bad columns, text that is not UTF-8. RunError: a disk error.
FilterCounts filter_pairs(const PairTextFiles& in, const FilterRules& rules, const PairTextOutput& out,
                          int threads = 0);

struct TopOptions {
  int64_t keep = 0;          // number of pairs; all if there are fewer
  std::string scores;        // a file with one line per pair; .gz and .zst are possible
  int64_t score_column = 1;  // 1-based; tabs or spaces separate columns
};
struct TopCounts {
  int64_t read = 0, kept = 0;
  int64_t unscored = 0, kept_unscored = 0;  // pairs with a score of -inf, and how many of them were kept
  double threshold = 0;                     // the lowest score kept
};
// Writes the pairs with the highest scores, in their order. Of equal scores, the earlier pairs are kept. -inf, which
// score_pairs writes for a pair that it could not score, is less than every number. Reads the scores four times and the
// text once; memory grows with neither. UserError: as filter_pairs, and also a score that is no number, NaN or inf, or
// a number of scores that differs from the number of pairs.
TopCounts keep_best_pairs(const PairTextFiles& in, const TopOptions& options, const PairTextOutput& out);

}  // namespace lmx::app
