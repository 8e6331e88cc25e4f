// Converts text files to a vocabulary and token shards, in two passes over the text: count the words (characters,
// bytes), then write their ids. If repeated strings are dropped, an additional pass before them finds these strings.
//
// Memory: one chunk and one table of types per thread, and the sum of these tables. Only DuplicateFinder's bit per line
// grows with the text's length. The written files are the same for any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/corpora/sources.h"
#include "app/text/tokenizer.h"
#include "lmx/data.h"

namespace lmx::app {

class SubwordTokenizer;
enum class DocumentToken : uint8_t { begin, end, none };  // where a document has the token for the end of text

struct PrepareSettings {
  TokenizerRules rules = {};
  bool puri = false;           // setting of Cleaner
  bool drop_repeated = false;  // leave out strings that equal an earlier one, over all splits
  int64_t vocab_size = 0;      // with <unk> and </s>; 0: every type
  bool end_of_line = true;     // </s> after each line that contains a word, or after each string (for bytes: \n)
  double valid_fraction = 0;   // fraction of the lines
  double test_fraction = 0;
  double train_fraction = 1;  // of the training split's lines; the other lines only count for the vocabulary
  std::shared_ptr<const SubwordTokenizer> tokenizer = nullptr;  // for subwords; null: trained with vocab_size entries
  DocumentToken document_token = DocumentToken::begin;          // for subwords
  std::string special_text = "text";                            // the same
  uint64_t split_seed = 0;
  int threads = 1;
  size_t chunk_bytes = 4 << 20;
};

struct SplitCounts {
  int64_t lines = 0;    // lines that contain a word; for characters and bytes: strings; for subwords: documents
  int64_t words = 0;    // words, characters or bytes, without the </s> after each line; subwords with all special ones
  int64_t unknown = 0;  // words that became <unk>
  int64_t bytes = 0;    // of the text of these words, line ends included
  SplitCounts& operator+=(const SplitCounts& other);
};

struct PrepareReport {
  std::array<SplitCounts, kSplits> splits;
  int64_t types = 0;       // of the training split
  std::string first_lost;  // the most frequent word outside the vocabulary; "" if there is none
  int64_t first_lost_count = 0;
  int64_t repeated = 0;  // strings left out because an earlier one is equal
  int64_t invalid = 0;   // strings from which the cleaner removed bytes that are not UTF-8
  Unit unit = Unit::word;
  std::string tokenizer;                       // for subwords: its description
  double oov() const;                          // of the training words
  std::string text(int64_t vocab_size) const;  // for people, several lines
};

// Returns the split of a line: a pure function of the seed and the line's number over all files.
Split split_of_line(const PrepareSettings& settings, Split forced, int64_t line);

// UserError: vocab_size (0: every type) exceeds the number of types of the training text.
void check_vocabulary(int64_t vocab_size, int64_t types, Unit unit = Unit::word);
// "word", "character", "byte", "subword".
const char* name_of(Unit unit);

// Writes train.bin, valid.bin, test.bin and vocab.tsv into `directory`; for characters and bytes also the lengths of
// the strings: train.strings.bin and so on. For subwords also the tokenizer, as save_text_codecs() writes it.
// UserError: invalid UTF-8 (file, line, byte), vocab_size above the number of types, a split without tokens that should
// have some. RunError: a disk error.
PrepareReport prepare(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                      const std::string& directory);

// Finds strings that occur more than once in a text.

// Finds the strings that equal an earlier one, at any distance. Strings with the same XXH3-128 count as equal; two
// different ones among 100 million share it with a probability of 10^-23. Memory: 6 MB, plus one bit per line and 0.1
// bytes per string. The remaining data is written to `directory`, 24 bytes per string.
class DuplicateFinder {
 public:
  explicit DuplicateFinder(std::string directory);
  ~DuplicateFinder();
  void add(std::string_view text, int64_t line);  // from any thread; each line once
  // Returns the lines to leave out: result[line] is true if the string of a lower line is equal. RunError: a disk
  // error.
  std::vector<bool> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx::app
