// `data.parts`, `data.ratio` and `data.epoch_of` of parallel text: more text to train on, mixed in by a ratio.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx::data {

inline constexpr const char* kMainPart = "main";  // the text that `data:` itself names

// One part beside the main text. All of it is training text.
struct PartConfig {
  std::string corpus, tokenizer = "auto", joiner;
  std::vector<std::string> source_files, target_files, files;
  std::vector<int64_t> tsv_columns{1, 2}, pairs;
  bool subwords = true;
  int64_t max_words = 0;
  double max_ratio = 0, wrong_targets = 0;
  void fields(Fields& f) {
    f.field("corpus", corpus, "a parallel corpus of the registry; its training pairs are read");
    f.field("source_files", source_files, "or files, directories, globs, also .gz");
    f.field("target_files", target_files, "as many files, in the same order");
    f.field("files", files, "or TSV files, a pair a line");
    f.field("tsv_columns", tsv_columns, "columns of TSV files that hold source and target, from 1", kPositive);
    f.choice("tokenizer", tokenizer, {"auto", "moses", "none", "tokenized"},
             "as of the main text; of both moses or of neither, where the text is not tokenized");
    f.field("joiner", joiner, "tokenized files only: ends a piece of a word that goes on (`@@`); taken out");
    f.field("pairs", pairs, "[first, last]: only these pairs, counted from 1; empty: all", kPositive);
    f.field("subwords", subwords, "train the subwords on this text, too");
    f.field("max_words", max_words, "pairs with a longer side are dropped; 0: no limit", kNonNegative);
    f.field("max_ratio", max_ratio, "pairs with a larger longer / shorter side are dropped; 0: no limit", kNonNegative);
    f.field("wrong_targets", wrong_targets,
            "share of the pairs that get the target of the pair before them, to study what noise does", {0, 1});
  }
};

struct MixPart {
  std::string name, path;  // "data.parts.crawl"
  Mark mark;
  double ratio = 1;
  PartConfig config;  // of the main text empty
};

// Empty where there are no parts; else the first is the main text.
struct Mix {
  std::vector<MixPart> parts;
  size_t epoch_of = 0;  // the part of which an epoch reads each pair once
  // How many pairs of a part an epoch reads: those of the defining part times the parts' ratio, to the nearest.
  int64_t draws(size_t part, int64_t defining_pairs) const;
};

// `data` is the whole node. UserError, with the place: an unknown part, a ratio that is no positive number, a part
// without text ...
Mix read_mix(const Node& data);
// `parts`, `ratio` and `epoch_of` with every default.
void write_mix(const Mix& mix, Node& parts, Node& ratio);

}  // namespace lmx::data
