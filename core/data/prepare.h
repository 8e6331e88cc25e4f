// Text files to a vocabulary and token shards, in two passes over the text: count the words, then write their ids.
//
// Memory: one chunk a thread, the types of each thread's counting and their sum; nothing grows with the text's length.
// The files written are the same for any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/sources.h"
#include "data/tokenizer.h"
#include "lmx/data.h"

namespace lmx::data {

struct PrepareSettings {
  TokenizerRules rules = {};
  int64_t vocab_size = 0;     // with <unk> and </s>; 0: every type
  bool end_of_line = true;    // </s> after each line that holds a word
  double valid_fraction = 0;  // of the lines
  double test_fraction = 0;
  uint64_t split_seed = 0;
  int threads = 1;
  size_t chunk_bytes = 4 << 20;
};

struct SplitCounts {
  int64_t lines = 0;    // that hold a word
  int64_t words = 0;    // without </s>
  int64_t unknown = 0;  // words that became <unk>
};

struct LMX_API PrepareReport {
  std::array<SplitCounts, kSplits> splits;
  int64_t types = 0;       // of the training split
  std::string first_lost;  // the most frequent word that has no place in the vocabulary; "" when none is lost
  int64_t first_lost_count = 0;
  double oov() const;                          // of the training words
  std::string text(int64_t vocab_size) const;  // for people, several lines
};

// Which split a line belongs to: a pure function of the seed and the line's number over all files.
LMX_API Split split_of_line(const PrepareSettings& settings, Split forced, int64_t line);

// UserError: vocab_size (0: every type) has more places than the training text has types.
LMX_API void check_vocabulary(int64_t vocab_size, int64_t types);

// The first pass alone: types, lines and words of each split; nothing is written. UserError: invalid UTF-8, a split
// without a token that should have some.
LMX_API PrepareReport count_text(const std::vector<SourceFile>& files, const PrepareSettings& settings);

// Writes train.bin, valid.bin, test.bin and vocab.tsv into `directory`. UserError: invalid UTF-8 (file, line, byte),
// vocab_size above the types, a split without a token that should have some. RunError: the disk.
LMX_API PrepareReport prepare(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                              const std::string& directory);

}  // namespace lmx::data
