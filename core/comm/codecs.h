// The codecs that are defined in separate files, and functions that all codecs share.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "comm/partition.h"
#include "lmx/codec.h"
#include "lmx/parallel.h"

namespace lmx::comm {

inline constexpr int64_t kCodecGrain = 1 << 15;  // smallest number of values for a thread

// Calls take(first, last, values) for decoded rows [first, last) of an encoded block: a strip of rows at a time, so
// that the values stay in a cache. Strips begin at multiples of strip_rows(width) and are distributed over threads.
inline int64_t strip_rows(int64_t width) {
  constexpr int64_t kStripValues = 4096;
  return rows_holding(kStripValues, width);
}
template <class Take>
void decode_strips(const Codec& codec, const std::byte* in, int64_t rows, int64_t width, Take&& take) {
  const int64_t strip = strip_rows(width);
  parallel_for((rows + strip - 1) / strip, 8, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(strip * width));
    for (int64_t first = begin * strip; first < std::min(rows, end * strip); first += strip) {
      const int64_t last = std::min(rows, first + strip);
      codec.decode_rows(in, rows, width, first, last, values.data());
      take(first, last, static_cast<const float*>(values.data()));
    }
  });
}

std::unique_ptr<Codec> make_fp16(float scale, bool reduce_in_fp16);
std::unique_ptr<Codec> make_one_bit();

struct Block {
  const float* values;  // (rows, width)
  int64_t rows, width;
};
// Counts the quantisation error between `values` and the block that they were encoded into. If `residual` is given, it
// becomes values - decoded; it may be `values` itself.
void account(const Codec& codec, const Block& values, const std::byte* encoded, CodecHealth& health,
             float* residual = nullptr);

}  // namespace lmx::comm
