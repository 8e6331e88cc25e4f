// The sentences of a text (lines, strings, documents) as a preparation visits them, and the shards that it writes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/corpora/sources.h"
#include "app/prepare/prepare.h"
#include "app/text/cleaner.h"
#include "app/text/tokenizer.h"
#include "data/shard.h"

namespace lmx::app {

// The objects that each thread needs separately.
struct TextWorker {
  explicit TextWorker(const PrepareSettings& s) : tokenizer(s.rules), cleaner(s.puri) {}
  Tokenizer tokenizer;
  Cleaner cleaner;
  std::vector<std::string_view> words;
  int64_t invalid = 0;  // strings from which `cleaner` removed bytes
};
std::vector<TextWorker> make_workers(const PrepareSettings& settings);

struct Text {
  const std::vector<SourceFile>& files;
  const PrepareSettings& settings;
  const std::vector<bool>& repeated;  // true: leave the line out; lines beyond the end of the vector are kept
};

// A string and its tokens. For bytes and subwords, `words` is empty.
struct Sentence {
  Split split;
  std::string_view text;
  const std::vector<std::string_view>& words;
  int64_t tokens;  // 0 for subwords
  int64_t line;    // over all files
  bool used;       // false: in the training split, but outside the fraction of it that is trained on
};

// Calls visit(Sentence) for each line of the chunk that contains a word, or for each string of characters, bytes or
// subwords. Lines of the training split are either all visited, or only if they are used. UserError: invalid UTF-8.
enum class LineChoice : uint8_t { used, all };
void for_each_sentence(const Text& text, const Chunk& chunk, TextWorker& worker, LineChoice wanted,
                       const std::function<void(const Sentence&)>& visit);

// Marks the lines whose strings equal an earlier one.
std::vector<bool> find_repeated(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                                const std::string& directory);

struct Encoded {
  std::vector<int32_t> ids, lengths;  // lengths: of the strings; none for words
  SplitCounts counts;
};
// Writes the shards of all splits into `directory`. encode(sentence, thread, to) appends the ids of a sentence. Returns
// the sums of the counts.
std::array<SplitCounts, kSplits> write_shards(const Text& text, const std::string& directory,
                                              const std::function<void(const Sentence&, int, Encoded&)>& encode);

// UserError: a split without tokens that should have some. `lines`: sentences of the training split, also of those that
// are not trained on; `tokens`: of each split.
void check_splits(const PrepareSettings& settings, const std::array<SplitCounts, kSplits>& splits, int64_t lines);

// The preparation of subwords, a part of prepare().
PrepareReport prepare_subwords(const Text& text, const std::string& directory);

}  // namespace lmx::app
