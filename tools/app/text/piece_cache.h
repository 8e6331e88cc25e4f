// The ids of the distinct pieces of a text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/word_table.h"

namespace lmx::data {

// Encodes each distinct piece (a word) only once, which is ten times as fast. Each thread needs its own object. Memory:
// at most about 50 MB.
class PieceCache {
 public:
  // Appends the ids of `piece` to `ids`. `encode(piece, ids)` appends them if the piece is new.
  template <class Encode>
  void append(std::string_view piece, std::vector<int32_t>& ids, Encode&& encode) {
    int64_t index = pieces_.find(piece);
    if (index < 0 && pieces_.size() >= kRemembered) return encode(piece, ids);
    if (index < 0) {
      index = pieces_.add(piece, 0);
      encode(piece, ids_);
      ends_.push_back(ids_.size());
    }
    const auto first = ids_.begin() + static_cast<std::ptrdiff_t>(ends_[static_cast<size_t>(index)]);
    const auto last = ids_.begin() + static_cast<std::ptrdiff_t>(ends_[static_cast<size_t>(index) + 1]);
    ids.insert(ids.end(), first, last);
  }

 private:
  static constexpr int64_t kRemembered = 1 << 20;
  WordTable pieces_;
  std::vector<int32_t> ids_;     // of all pieces, concatenated
  std::vector<size_t> ends_{0};  // piece i has the ids in [ends_[i], ends_[i + 1])
};

}  // namespace lmx::data
