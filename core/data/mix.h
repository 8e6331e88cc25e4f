// `data.parts`, `data.ratio` and `data.epoch_of` of parallel text: additional training text, mixed with the main text
// in a given ratio.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx::data {

inline constexpr const char* kMainPart = "main";  // the text of `data:` itself

// One part besides the main text. All of its pairs are training pairs.
struct PartConfig {
  std::string corpus, tokenizer = "auto", joiner;
  std::vector<std::string> source_files, target_files, files;
  std::vector<int64_t> tsv_columns{1, 2}, pairs;
  bool subwords = true;
  int64_t max_words = 0;
  double max_ratio = 0, wrong_targets = 0;
  void fields(Fields& f) {
    f.field("corpus", corpus, "a parallel corpus of the registry; its training pairs are read");
    f.field("source_files", source_files, "or files, directories, globs, also .gz and .zst");
    f.field("target_files", target_files, "the same number of files, in the same order");
    f.field("files", files, "or TSV files with one pair per line");
    f.field("tsv_columns", tsv_columns, "columns of TSV files that contain source and target, from 1", kPositive);
    f.choice("tokenizer", tokenizer, {"auto", "moses", "none", "tokenized"},
             "as for the main text; if the text is not tokenized, either both texts use moses or none");
    f.field("joiner", joiner,
            "tokenized files only: the mark at the end of a piece whose word continues (`@@`); it is removed");
    f.field("pairs", pairs, "[first, last]: only these pairs, counted from 1; empty: all", kPositive);
    f.field("subwords", subwords, "also train the subwords on this text");
    f.field("max_words", max_words, "pairs with a longer side are dropped; 0: no limit", kNonNegative);
    f.field("max_ratio", max_ratio, "pairs with a larger longer / shorter side are dropped; 0: no limit", kNonNegative);
    f.field("wrong_targets", wrong_targets,
            "share of the pairs that get the target of the pair before them, to study the effect of noise", {0, 1});
  }
};

struct MixPart {
  std::string name, path;  // "data.parts.crawl"
  Mark mark;
  double ratio = 1;
  PartConfig config;  // empty for the main text
};

// The parts of the training text. Empty if `data.parts` is not given; otherwise the first one is the main text.
struct Mix {
  std::vector<MixPart> parts;
  size_t epoch_of = 0;  // the part of which an epoch reads each pair once
  // Number of pairs that an epoch reads from a part: those of the `epoch_of` part times the ratio of the two parts,
  // rounded.
  int64_t draws(size_t part, int64_t defining_pairs) const;
};

// `data` is the whole node. UserError, with the place: an unknown part, a ratio that is not positive, a part without
// text, and others.
Mix read_mix(const Node& data);
// `parts`, `ratio` and `epoch_of` with every default.
void write_mix(const Mix& mix, Node& parts, Node& ratio);

}  // namespace lmx::data
