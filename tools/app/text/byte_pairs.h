// Byte-pair encoding of a piece of text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lmx::data {

// The merges of a byte-pair encoding over ids. Thread-safe after the last add().
class BytePairs {
 public:
  // The merge of the ids `left` and `right` to `merged`; an earlier one has priority. Returns false if there is one.
  bool add(int32_t left, int32_t right, int32_t merged);
  // Merges the ids of a piece until no merge applies, in the order of the merges, equal ones from left to right.
  void merge(std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank, merged;
  };
  const Merge* find(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& ids) const;
  void merge_long(std::vector<int32_t>& ids) const;
  std::unordered_map<uint64_t, Merge> merges_;
};

// The 256 characters with which GPT-2 writes bytes, as UTF-8: printable ones as themselves, others from U+0100 on.
const std::array<std::string, 256>& byte_characters();
// The bytes of a text in these characters; false if it contains another character.
bool bytes_of_characters(std::string_view text, std::string& bytes);

}  // namespace lmx::data
