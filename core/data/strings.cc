// TextStrings and StringShards: the positions of strings in a text, and their order in shards.
#include <algorithm>
#include <numeric>

#include "lmx/batcher.h"
#include "lmx/error.h"

namespace lmx {
namespace {

constexpr int64_t kStride = 64;  // one position is stored for each kStride strings: 8 bytes

}  // namespace

TextStrings::TextStrings(TokenArray lengths) : lengths_(std::move(lengths)) {
  auto begins = std::make_shared<std::vector<int64_t>>();
  const auto all = lengths_.tokens();
  for (int64_t i = 0; i < lengths_.size(); ++i) {
    if (i % kStride == 0) begins->push_back(tokens_);
    tokens_ += all[static_cast<size_t>(i)];
  }
  begins_ = std::move(begins);
}

TextStrings::Range TextStrings::at(int64_t i) const {
  LMX_CHECK(i >= 0 && i < size(), "string ", i, " of ", size());
  const int32_t* lengths = lengths_.tokens().data();
  const int64_t first = i - i % kStride;
  const int64_t begin = (*begins_)[static_cast<size_t>(i / kStride)];
  return {std::accumulate(lengths + first, lengths + i, begin), lengths[i]};
}

StringShards::StringShards(TokenArray tokens, TextStrings strings, int64_t shards, RandomKey key,
                           const std::string& split)
    : tokens_(std::move(tokens)), strings_(std::move(strings)), key_(key) {
  LMX_CHECK(shards > 0 && strings_.tokens() == tokens_.size(), shards, " shards of ", strings_.tokens(), " tokens");
  if (strings_.size() < shards) {
    throw UserError(str("[data] ", shards, " shards of the ", split, " split need as many strings (lines, reviews); ",
                        "it holds ", strings_.size(),
                        strings_.size() == 0 ? " (data.tokens: chars or bytes keep them)" : ""));
  }
  begins_.push_back(0);
  int64_t at = 0, length = drawn(0).length;
  for (int64_t rank = 0; rank < strings_.size(); ++rank) {
    if (rank % kStride == 0) marks_.push_back(at);
    const int64_t next = at + length;
    const auto shard = static_cast<int64_t>(begins_.size());  // the shard that could begin after this string
    const auto wanted = static_cast<int64_t>(static_cast<double>(tokens_.size()) * static_cast<double>(shard) /
                                             static_cast<double>(shards));
    // The end of this string is closer to the wanted position than the end of the next one. Each remaining shard needs
    // a string.
    const bool last_chance = strings_.size() - rank - 1 == shards - shard;
    length = rank + 1 < strings_.size() ? drawn(rank + 1).length : 0;
    const int64_t after = next + length;
    if (shard < shards && (last_chance || std::abs(next - wanted) <= std::abs(after - wanted))) begins_.push_back(next);
    at = next;
  }
  begins_.push_back(at);
  LMX_CHECK(size() == shards, size(), " shards of ", shards);
}

TextStrings::Range StringShards::drawn(int64_t rank) const {
  return strings_.at(
      static_cast<int64_t>(permute(key_, static_cast<uint64_t>(rank), static_cast<uint64_t>(strings_.size()))));
}

int64_t StringShards::shortest() const {
  int64_t least = tokens_.size();
  for (int64_t s = 0; s < size(); ++s) least = std::min(least, length(s));
  return least;
}

void StringShards::copy(int64_t shard, int64_t offset, int64_t count, int32_t* to) const {
  LMX_CHECK(shard >= 0 && shard < size() && offset >= 0 && count >= 0 && offset + count <= length(shard), "shard ",
            shard, ", tokens ", offset, " + ", count);
  const int64_t from = begins_[static_cast<size_t>(shard)] + offset;
  const auto mark = std::upper_bound(marks_.begin(), marks_.end(), from) - marks_.begin() - 1;
  int64_t rank = mark * kStride, at = marks_[static_cast<size_t>(mark)];
  for (; count > 0; ++rank) {
    const TextStrings::Range s = drawn(rank);
    const int64_t skip = std::max<int64_t>(0, from - at);
    at += s.length;
    if (skip >= s.length) continue;
    const int64_t n = std::min(count, s.length - skip);
    tokens_.copy(s.begin + skip, {to, static_cast<size_t>(n)});
    to += n;
    count -= n;
  }
}

}  // namespace lmx
