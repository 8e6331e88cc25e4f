// Token data: vocabularies and memory-mapped token shards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/api.h"

namespace lmx {

// Words (or characters) and their ids. Ids 0 and 1 are `<unk>` and `</s>` (end of line). The words follow by falling
// frequency, ties by bytes, so that a log-uniform sampler over ids matches the words' frequencies. In a vocabulary of
// bytes, id i is byte i, written `<0x00>` to `<0xFF>`; it has neither `<unk>` nor `</s>`.
class LMX_API Vocabulary {
 public:
  static constexpr int32_t kUnk = 0, kEos = 1;
  struct Entry {
    std::string word;
    int64_t count = 0;  // occurrences in the training split; <unk> counts the words that it replaces
  };
  Vocabulary() = default;
  explicit Vocabulary(std::vector<Entry> entries);
  static Vocabulary bytes(std::span<const int64_t> counts);  // REQUIRES: 256 counts
  // `size` words that have no names, and whose counts follow Zipf's law: to count a step without its text.
  static Vocabulary unnamed(int64_t size);
  bool of_bytes() const;
  int64_t size() const { return unnamed_ > 0 ? unnamed_ : static_cast<int64_t>(entries_.size()); }
  const std::string& word(int32_t id) const { return entries_.at(static_cast<size_t>(id)).word; }
  int64_t count(int32_t id) const {
    return unnamed_ > 0 ? 1 + unnamed_ / (id + 1) : entries_[static_cast<size_t>(id)].count;
  }
  int32_t id(std::string_view word) const;   // kUnk if unknown
  void save(const std::string& path) const;  // one line "word<TAB>count" for each
  static Vocabulary load(const std::string& path);

 private:
  std::vector<Entry> entries_;
  std::shared_ptr<const void> index_;
  int64_t unnamed_ = 0;
};

// A split's tokens as one read-only array, mapped from disk. Cheap to copy; thread-safe.
class LMX_API TokenArray {
 public:
  TokenArray() = default;
  static TokenArray map(const std::string& path);  // UserError: missing, truncated or damaged shard
  static TokenArray of(std::vector<int32_t> tokens);
  // `size` tokens: these again and again, in memory for one copy of them and addresses for all. UserError: there are
  // not enough addresses.
  static TokenArray repeated(const std::vector<int32_t>& tokens, int64_t size);
  int64_t size() const { return size_; }
  std::span<const int32_t> tokens() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::shared_ptr<const void> owner_;
  const int32_t* data_ = nullptr;
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
