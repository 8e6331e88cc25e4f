// Token data: vocabularies, memory-mapped token shards, and the registry of corpora.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmx/api.h"
#include "lmx/config.h"

namespace lmx {

// Words (or characters) and their ids. Ids 0 and 1 are `<unk>` and `</s>` (end of line); then words by falling
// frequency, ties by bytes, so that a log-uniform sampler over ids follows the words' frequencies. Of bytes, id i is
// byte i, written `<0x00>` to `<0xFF>`, and there is neither `<unk>` nor `</s>`.
class LMX_API Vocabulary {
 public:
  static constexpr int32_t kUnk = 0, kEos = 1;
  struct Entry {
    std::string word;
    int64_t count = 0;  // occurrences in the training split; <unk> counts the words it stands for
  };
  Vocabulary() = default;
  explicit Vocabulary(std::vector<Entry> entries);
  static Vocabulary bytes(std::span<const int64_t> counts);  // REQUIRES: 256 counts
  bool of_bytes() const;
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  const std::string& word(int32_t id) const { return entries_[static_cast<size_t>(id)].word; }
  int64_t count(int32_t id) const { return entries_[static_cast<size_t>(id)].count; }
  int32_t id(std::string_view word) const;   // kUnk when unknown
  void save(const std::string& path) const;  // one "word<TAB>count" a line
  static Vocabulary load(const std::string& path);

 private:
  std::vector<Entry> entries_;
  std::shared_ptr<const void> index_;
};

// A split's tokens as one read-only array, mapped from disk. Cheap to copy; thread-safe.
class LMX_API TokenArray {
 public:
  TokenArray() = default;
  static TokenArray map(const std::string& path);  // UserError: missing, truncated or damaged shard
  static TokenArray of(std::vector<int32_t> tokens);
  int64_t size() const { return size_; }
  std::span<const int32_t> tokens() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::shared_ptr<const void> owner_;
  const int32_t* data_ = nullptr;
  int64_t size_ = 0;
};

// Where the strings of a text (its lines, its reviews) lie in its tokens. Cheap to copy; thread-safe.
class LMX_API TextStrings {
 public:
  struct Range {
    int64_t begin = 0, length = 0;
  };
  TextStrings() = default;
  explicit TextStrings(TokenArray lengths);  // of the strings in their order, which fill the tokens
  int64_t size() const { return lengths_.size(); }
  int64_t tokens() const { return tokens_; }
  Range at(int64_t i) const;

 private:
  TokenArray lengths_;
  std::shared_ptr<const std::vector<int64_t>> begins_;  // of every 64th string
  int64_t tokens_ = 0;
};

// A split of parallel text as ids of one vocabulary: sentence i of the source beside sentence i of the target, each
// ended by </s>. Cheap to copy; thread-safe.
class LMX_API PairArray {
 public:
  PairArray() = default;
  // UserError: not as many </s> on one side as on the other, or a side that does not end with one.
  PairArray(TokenArray source, TokenArray target);
  int64_t size() const { return static_cast<int64_t>(target_ends_ ? target_ends_->size() : 0); }
  std::span<const int32_t> source(int64_t i) const;  // with its </s>
  std::span<const int32_t> target(int64_t i) const;

 private:
  TokenArray source_, target_;
  std::shared_ptr<const std::vector<int64_t>> source_ends_, target_ends_;  // (size) one past each sentence's </s>
};

// A training split of several texts that are mixed by a ratio: one of them, pairs [first, first + count) of the split.
// An epoch reads `draws` of them: each once where that is `count`, else as many as come next in an endless row of
// passes over the part, each in an order of its own.
struct PairPart {
  std::string name;
  int64_t first = 0, count = 0, draws = 0;
};

// Text of one language to ids and back, as a preparation did it: tokenization, then subwords. Thread-safe.
class LMX_API TextCodec {
 public:
  virtual ~TextCodec();
  virtual std::vector<int32_t> encode(std::string_view line) const = 0;           // without </s>
  virtual std::string decode(std::span<const int32_t> ids) const = 0;             // detokenized; stops at </s>
  virtual std::string decode_tokens(std::span<const int32_t> ids) const = 0;      // subwords joined, not detokenized
  virtual const std::string& language() const = 0;                                // "en"
};

// What a translation run keeps of its data to translate without it: files of the run's folder.
struct TextCodecs {
  std::shared_ptr<const TextCodec> source, target;
};
LMX_API void save_text_codecs(const TextCodecs& codecs, const std::string& directory);
// UserError: a file is missing or damaged.
LMX_API TextCodecs load_text_codecs(const std::string& directory);

// Whether a token is a character or a byte, of which bits per character (bpc) speak; `unit`: Dataset::unit.
inline bool is_character(std::string_view unit) {
  return unit == "char" || unit == "byte";
}

// What `data:` of a recipe names, prepared: three splits and a vocabulary.
struct Dataset {
  TokenArray train, valid, test;  // test may be empty; of parallel text the target side
  TextStrings train_strings, valid_strings, test_strings;    // of chars and bytes, else empty
  int64_t train_bytes = 0, valid_bytes = 0, test_bytes = 0;  // of the text that the tokens stand for; 0: unknown
  PairArray train_pairs, valid_pairs, test_pairs;  // parallel text, else empty
  std::vector<PairPart> train_parts;               // of train_pairs, in order; empty: one text, each pair once an epoch
  TextCodecs codecs;                               // of parallel text
  Vocabulary vocabulary;                           // of parallel text the joint subwords
  std::string unit = "word";                       // what a token is: word, char, byte, subword
  std::string hash;                       // content hash of the source and the preparation's settings
  std::string directory;                  // where the shards lie; "" for data made in memory
  int64_t types = 0;                      // distinct words of the training split, before the vocabulary was cut
  double oov = 0;                         // fraction of the training words (</s> aside) that became <unk>
  std::optional<double> true_perplexity;  // of the source on the valid split, where it is known (synthetic data)
  std::string source_note;                // one line: corpus, licence
  std::string report;                     // several lines for people: types, tokens, coverage, OOV, the first lost word
};

// Reads `data:` of a composed recipe, prepares what is not cached yet (parallel, bounded memory, safe between
// processes) and maps it. UserError: corpus missing (names how to get it), empty, invalid UTF-8, vocabulary larger than
// the types.
LMX_API Dataset open_dataset(const Node& data);
// The same text with every type in the vocabulary and no </s>, for statistics; `vocab_size` of `data` does not matter.
LMX_API Dataset open_all_types(const Node& data);
// What `--dry-run` can tell of `data:` without preparing anything.
struct DataCheck {
  std::vector<std::string> findings;  // what open_dataset would complain about, one line each; a missing corpus is one
  std::optional<int64_t> train_tokens;  // known of made-up text, of text that was prepared before, and of little text
  std::optional<Dataset> dataset;       // little text of a language model, nothing of which is written to the cache
};
// UserError only for a `data:` that cannot be read as a config.
LMX_API DataCheck check_dataset(const Node& data);
// Number of tokens that model tables have, from the recipe alone (`data.vocab_size`), without opening the data.
LMX_API int64_t vocabulary_size(const Node& data);
// `data:` with every default, as config.yaml records it.
LMX_API Node full_data_config(const Node& data);

}  // namespace lmx
