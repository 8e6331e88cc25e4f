#include "data/word_table.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace lmx::data {
namespace {

constexpr size_t kFirstSlots = 1 << 12;
constexpr size_t kBlock = 1 << 16;

}  // namespace

WordTable::WordTable() : slots_(kFirstSlots) {}

size_t WordTable::place(std::string_view word, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] == 0) return slot;
    const Entry& e = entries_[slots_[slot] - 1];
    if (e.hash == hash && e.length == word.size() && std::memcmp(e.text, word.data(), word.size()) == 0) return slot;
  }
}

int64_t WordTable::add(std::string_view word, int64_t count) {
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  size_t slot = place(word, hash);
  if (slots_[slot] == 0) {
    if (2 * (entries_.size() + 1) > slots_.size()) {
      grow();
      slot = place(word, hash);
    }
    entries_.push_back({store(word), word.size(), hash, 0});
    slots_[slot] = static_cast<uint32_t>(entries_.size());
  }
  const uint32_t index = slots_[slot] - 1;
  entries_[index].count += count;
  return index;
}

int64_t WordTable::find(std::string_view word) const {
  return static_cast<int64_t>(slots_[place(word, XXH3_64bits(word.data(), word.size()))]) - 1;
}

const char* WordTable::store(std::string_view word) {
  if (word.size() > block_left_) {
    const size_t size = std::max(kBlock, word.size());
    blocks_.push_back(std::make_unique<char[]>(size));
    block_next_ = blocks_.back().get();
    block_left_ = size;
  }
  char* text = block_next_;
  if (!word.empty()) std::memcpy(text, word.data(), word.size());
  block_next_ += word.size();
  block_left_ -= word.size();
  return text;
}

void WordTable::grow() {
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(i + 1);
  }
}

}  // namespace lmx::data
