// Token data: vocabularies and memory-mapped token shards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/api.h"

namespace lmx {

// Words (characters, subwords) and their ids. In a vocabulary that lmx counts, ids 0 and 1 are `<unk>` and `</s>` (end
// of line), and the words follow by falling frequency, ties by bytes, so that a log-uniform sampler over ids matches the
// words' frequencies. In a vocabulary of bytes, id i is byte i, written `<0x00>` to `<0xFF>`; it has no `<unk>`, and a
// line ends with its line end. A vocabulary from a tokenizer's file has the ids of that file.
class LMX_API Vocabulary {
 public:
  static constexpr int32_t kUnk = 0, kEos = 1;
  struct Entry {
    std::string word;
    int64_t count = 0;  // occurrences in the training split; <unk> counts the words that it replaces
  };
  // The ids that stand for unknown words, and for the end of a line or document; -1: none.
  struct Special {
    int32_t unk = kUnk, eos = kEos;
    bool operator==(const Special&) const = default;
  };
  Vocabulary() = default;
  explicit Vocabulary(std::vector<Entry> entries) : Vocabulary(std::move(entries), Special()) {}
  Vocabulary(std::vector<Entry> entries, Special special);
  static Vocabulary bytes(std::span<const int64_t> counts);  // REQUIRES: 256 counts
  // `size` words that have no names, and whose counts follow Zipf's law: to count a step without its text.
  static Vocabulary unnamed(int64_t size);
  bool of_bytes() const;
  int64_t size() const { return unnamed_ > 0 ? unnamed_ : static_cast<int64_t>(entries_.size()); }
  const std::string& word(int32_t id) const { return entries_.at(static_cast<size_t>(id)).word; }
  int64_t count(int32_t id) const {
    return unnamed_ > 0 ? 1 + unnamed_ / (id + 1) : entries_[static_cast<size_t>(id)].count;
  }
  int32_t unk() const { return special_.unk; }
  int32_t eos() const { return special_.eos; }
  int32_t id(std::string_view word) const;  // unk() if unknown
  // One line "word<TAB>count" for each. If the special ids are not 0 and 1, a comment line before them names these ids,
  // and line ends and backslashes of words are written as \n and \\.
  void save(const std::string& path) const;
  static Vocabulary load(const std::string& path);

 private:
  std::vector<Entry> entries_;
  std::shared_ptr<const void> index_;
  Special special_;
  int64_t unnamed_ = 0;
};

// A split's tokens as one read-only array, mapped from disk. Cheap to copy; thread-safe.
class LMX_API TokenArray {
 public:
  // The tokens of one file that is not a shard of lmx: `count` little-endian ids from byte `offset` on, each of `width`
  // bytes (2: unsigned; 4: signed).
  struct Part {
    std::string path;
    int64_t offset = 0, count = 0;
    int width = 4;
  };
  TokenArray() = default;
  static TokenArray map(const std::string& path);  // UserError: missing, truncated or damaged shard
  // Maps the parts one after the other, without converting them. UserError: a file is missing or too short.
  static TokenArray map_parts(std::span<const Part> parts);
  static TokenArray of(std::vector<int32_t> tokens);
  // `size` tokens: these again and again, in memory for one copy of them and addresses for all. UserError: there are
  // not enough addresses.
  static TokenArray repeated(const std::vector<int32_t>& tokens, int64_t size);
  int64_t size() const { return size_; }
  // Copies the tokens first .. first + to.size(). REQUIRES: they exist.
  void copy(int64_t first, std::span<int32_t> to) const;
  // All tokens as one span. InternalError: the tokens are those of several parts, or of 2 bytes each; use copy().
  std::span<const int32_t> tokens() const;

 private:
  struct Piece {
    const char* data = nullptr;
    int64_t begin = 0;  // index of its first token
    int width = 4;
  };
  std::shared_ptr<const void> owner_;
  const int32_t* data_ = nullptr;                    // null if there are pieces
  std::shared_ptr<const std::vector<Piece>> pieces_;  // null if the tokens are one span of 4 bytes each
  int64_t size_ = 0;
};

// The range of tokens of each string of a text (its lines, its reviews). Cheap to copy; thread-safe.
class LMX_API TextStrings {
 public:
  struct Range {
    int64_t begin = 0, length = 0;
  };
  TextStrings() = default;
  explicit TextStrings(TokenArray lengths);  // lengths of the strings, in order; they add up to all tokens
  int64_t size() const { return lengths_.size(); }
  int64_t tokens() const { return tokens_; }
  Range at(int64_t i) const;

 private:
  TokenArray lengths_;
  std::shared_ptr<const std::vector<int64_t>> begins_;  // first tokens of every 64th string
  int64_t tokens_ = 0;
};

// A split of parallel text as ids of one vocabulary: sentence i of the source and its translation, sentence i of the
// target. Each ends with </s>. Cheap to copy; thread-safe.
class LMX_API PairArray {
 public:
  PairArray() = default;
  // UserError: the sides have different numbers of </s>, or a side does not end with </s>.
  PairArray(TokenArray source, TokenArray target);
  int64_t size() const { return static_cast<int64_t>(target_ends_ ? target_ends_->size() : 0); }
  std::span<const int32_t> source(int64_t i) const;  // with its </s>
  std::span<const int32_t> target(int64_t i) const;

 private:
  TokenArray source_, target_;
  std::shared_ptr<const std::vector<int64_t>> source_ends_, target_ends_;  // (size) one past each sentence's </s>
};

// One text of a training split that mixes several texts by a ratio: pairs [first, first + count) of the split. An epoch
// reads `draws` of these pairs. If draws = count, it reads each pair once. Otherwise it reads the next `draws` pairs of
// an endless sequence of passes over the part, each pass in a new order.
struct PairPart {
  std::string name;
  int64_t first = 0, count = 0, draws = 0;
};

}  // namespace lmx
