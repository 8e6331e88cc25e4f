// Text files to a vocabulary and token shards, in two passes over the text: count the words (characters, bytes), then
// write their ids; a pass before them finds repeated strings.
//
// Memory: one chunk a thread, the types of each thread's counting and their sum; nothing grows with the text's length
// but DuplicateFinder's bit a line.
// The files written are the same for any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "app/corpora/sources.h"
#include "app/text/tokenizer.h"
#include "lmx/data.h"

namespace lmx::data {

struct PrepareSettings {
  TokenizerRules rules = {};
  bool puri = false;           // Cleaner's
  bool drop_repeated = false;  // strings that equal an earlier one, over all splits
  int64_t vocab_size = 0;      // with <unk> and </s>; 0: every type
  bool end_of_line = true;     // </s> after each line that holds a word, or after each string (as a byte: \n)
  double valid_fraction = 0;   // of the lines
  double test_fraction = 0;
  double train_fraction = 1;  // of the training split's lines; of the others only the vocabulary knows
  uint64_t split_seed = 0;
  int threads = 1;
  size_t chunk_bytes = 4 << 20;
};

struct SplitCounts {
  int64_t lines = 0;    // that hold a word; of characters and bytes: strings
  int64_t words = 0;    // words, characters or bytes, without the </s> after each line
  int64_t unknown = 0;  // of them that became <unk>
  int64_t bytes = 0;    // of the text that they stand for, line ends included
};

struct PrepareReport {
  std::array<SplitCounts, kSplits> splits;
  int64_t types = 0;       // of the training split
  std::string first_lost;  // the most frequent word that has no place in the vocabulary; "" when none is lost
  int64_t first_lost_count = 0;
  int64_t repeated = 0;  // strings left out because an earlier one is equal
  int64_t invalid = 0;   // strings of which the cleaner left bytes out that are not UTF-8
  Unit unit = Unit::word;
  double oov() const;                          // of the training words
  std::string text(int64_t vocab_size) const;  // for people, several lines
};

// Which split a line belongs to: a pure function of the seed and the line's number over all files.
Split split_of_line(const PrepareSettings& settings, Split forced, int64_t line);

// UserError: vocab_size (0: every type) has more places than the training text has types.
void check_vocabulary(int64_t vocab_size, int64_t types, Unit unit = Unit::word);
// "word", "character", "byte".
const char* name_of(Unit unit);

// Writes train.bin, valid.bin, test.bin and vocab.tsv into `directory`; of characters and bytes also the strings'
// lengths, train.strings.bin and so on. UserError: invalid UTF-8 (file, line, byte),
// vocab_size above the types, a split without a token that should have some. RunError: the disk.
PrepareReport prepare(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                      const std::string& directory);

}  // namespace lmx::data
