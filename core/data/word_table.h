// Maps words to dense indices and counts them: the hash table of vocabularies and of word counting.
//
// Open addressing over an arena: 32 bytes for each distinct word plus its letters, a third of the memory of
// std::unordered_map, and one cache miss for each lookup. Not thread-safe: each counting thread has a separate table.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace lmx {

class WordTable {
 public:
  WordTable();
  // Adds `count` to the word's count and returns its index. A new word gets the next index.
  int64_t add(std::string_view word, int64_t count);
  int64_t find(std::string_view word) const;  // -1 if absent
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  std::string_view word(int64_t i) const {
    return {entries_[static_cast<size_t>(i)].text, entries_[static_cast<size_t>(i)].length};
  }
  int64_t count(int64_t i) const { return entries_[static_cast<size_t>(i)].count; }

 private:
  struct Entry {
    const char* text;
    size_t length;
    uint64_t hash;
    int64_t count;
  };
  size_t place(std::string_view word, uint64_t hash) const;  // the slot of the word, or the empty slot for it
  const char* store(std::string_view word);
  void grow();

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // index + 1; 0: empty. A power of two, at most half full
  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t block_left_ = 0;
  char* block_next_ = nullptr;
};

}  // namespace lmx
