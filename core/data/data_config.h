// The typed configs of `data:`, chosen by its key `name`.
#pragma once

#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx::data {

struct TextConfig {
  std::string corpus, tokenizer = "auto", cache_dir;
  std::vector<std::string> files, valid_files, test_files;
  int64_t vocab_size = 0, split_seed = 1, threads = 0;
  bool lower_case = true, end_of_line = true;
  double valid_fraction = 0.01, test_fraction = 0;
  void fields(Fields& f) {
    f.required("vocab_size", vocab_size, "entries of the vocabulary: <unk>, </s> and the most frequent words",
               {3, 2147483647.0});
    f.field("corpus", corpus, "a corpus of the registry (`lmx data list`); or give files");
    f.field("files", files, "text files, directories, globs; .gz is read too");
    f.field("valid_files", valid_files, "files of the validation split; without them it is drawn from files");
    f.field("test_files", test_files, "files of the test split; without them it is drawn from files");
    f.choice("tokenizer", tokenizer, {"auto", "rules", "whitespace"},
             "how lines are cut into words: lmx's rules, or white space alone; auto: as the corpus says, else rules");
    f.field("lower_case", lower_case, "lower-case the text");
    f.field("end_of_line", end_of_line, "put </s> after each line that holds a word");
    f.field("valid_fraction", valid_fraction, "of the lines that become the validation split", {0, 0.9});
    f.field("test_fraction", test_fraction, "of the lines that become the test split", {0, 0.9});
    f.field("split_seed", split_seed, "which lines those are; the same on every machine", kNonNegative);
    f.field("cache_dir", cache_dir,
            "where prepared data is kept; empty: LMX_CACHE_DIR, $XDG_CACHE_HOME/lmx or ~/.cache/lmx");
    f.field("threads", threads, "that prepare the data; 0: all cores", {0, 1024});
  }
};

struct SyntheticConfig {
  int64_t vocab_size = 2000, train_tokens = 1'000'000, valid_tokens = 20'000, test_tokens = 20'000;
  int64_t classes = 32, branching = 24, line_length = 12, seed = 1;
  double zipf_exponent = 1.0, noise = 0.2;
  void fields(Fields& f) {
    f.field("vocab_size", vocab_size, "entries of the vocabulary: <unk> (never drawn), </s> and made-up words",
            {4, 10'000'000});
    f.field("train_tokens", train_tokens, "tokens of the training split", {2, 4e9});
    f.field("valid_tokens", valid_tokens, "tokens of the validation split", {2, 4e9});
    f.field("test_tokens", test_tokens, "tokens of the test split; 0: none", {0, 4e9});
    f.field("zipf_exponent", zipf_exponent, "the r-th most frequent word has frequency r^-exponent", {0, 4});
    f.field("classes", classes, "word classes; the class of a word decides what may follow it", {1, 100'000});
    f.field("branching", branching, "words that a class prefers to be followed by", {1, 100'000});
    f.field("noise", noise, "probability that a word is drawn by frequency alone, whatever stands before it",
            kFraction);
    f.field("line_length", line_length, "mean number of words between two </s>", kPositive);
    f.field("seed", seed, "of the source and of its text", kNonNegative);
  }
};

}  // namespace lmx::data
