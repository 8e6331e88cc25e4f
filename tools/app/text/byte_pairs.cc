#include "app/text/byte_pairs.h"

#include <queue>

#include "app/text/utf8.h"

namespace lmx::data {
namespace {

constexpr size_t kShort = 64;  // ids of a piece that is searched for its next merge again and again

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

bool BytePairs::add(int32_t left, int32_t right, int32_t merged) {
  return merges_.try_emplace(key_of(left, right), Merge{static_cast<int32_t>(merges_.size()), merged}).second;
}

const BytePairs::Merge* BytePairs::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairs::merge(std::vector<int32_t>& ids) const {
  ids.size() <= kShort ? merge_short(ids) : merge_long(ids);
}

void BytePairs::merge_short(std::vector<int32_t>& ids) const {
  std::vector<const Merge*> next;  // the merge of each id and the one after it
  for (size_t i = 0; i + 1 < ids.size(); ++i) next.push_back(find(ids[i], ids[i + 1]));
  for (;;) {
    size_t best = next.size();
    for (size_t i = 0; i < next.size(); ++i)
      if (next[i] && (best == next.size() || next[i]->rank < next[best]->rank)) best = i;
    if (best == next.size()) return;
    ids[best] = next[best]->merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    next.erase(next.begin() + static_cast<std::ptrdiff_t>(best));
    if (best > 0) next[best - 1] = find(ids[best - 1], ids[best]);
    if (best < next.size()) next[best] = find(ids[best], ids[best + 1]);
  }
}

// The same with a heap, in O(n log n). An id that was merged into the one before it is -1.
void BytePairs::merge_long(std::vector<int32_t>& ids) const {
  struct Candidate {
    int32_t rank, merged;
    size_t at, next;
    int32_t left, right;
    bool operator<(const Candidate& other) const {  // the heap has its largest element first
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const size_t n = ids.size();
  std::vector<size_t> before(n), after(n);
  for (size_t i = 0; i < n; ++i) {
    before[i] = i - 1;
    after[i] = i + 1;
  }
  std::priority_queue<Candidate> heap;
  const auto propose = [&](size_t at) {
    if (at >= n || after[at] >= n) return;
    if (const Merge* m = find(ids[at], ids[after[at]]))
      heap.push({m->rank, m->merged, at, after[at], ids[at], ids[after[at]]});
  };
  for (size_t i = 0; i + 1 < n; ++i) propose(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    if (ids[c.at] != c.left || after[c.at] != c.next || ids[c.next] != c.right) continue;  // one of them was merged
    ids[c.at] = c.merged;
    ids[c.next] = -1;
    after[c.at] = after[c.next];
    if (after[c.at] < n) before[after[c.at]] = c.at;
    propose(before[c.at]);
    propose(c.at);
  }
  std::erase(ids, -1);
}

const std::array<std::string, 256>& byte_characters() {
  static const auto characters = [] {
    std::array<std::string, 256> all;
    char32_t other = 0x100;
    for (char32_t byte = 0; byte < all.size(); ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      append_utf8(all[byte], printable ? byte : other++);
    }
    return all;
  }();
  return characters;
}

bool bytes_of_characters(std::string_view text, std::string& bytes) {
  static const auto values = [] {
    std::unordered_map<char32_t, char> all;
    for (size_t byte = 0; byte < 256; ++byte) all[code_points(byte_characters()[byte])[0]] = static_cast<char>(byte);
    return all;
  }();
  std::u32string codes;
  bytes.clear();
  if (decode_utf8(text, codes) != kValidUtf8) return false;
  for (const char32_t code : codes) {
    const auto found = values.find(code);
    if (found == values.end()) return false;
    bytes.push_back(found->second);
  }
  return true;
}

}  // namespace lmx::data
