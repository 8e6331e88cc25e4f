// The codecs that have a file of their own, and what all share.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "comm/cut.h"
#include "lmx/codec.h"
#include "lmx/parallel.h"

namespace lmx::comm {

inline constexpr int64_t kCodecGrain = 1 << 15;  // values of a thread's share, at least

// take(first, last, values) for rows [first, last) of an encoded block, decoded: some at a time, so that they stay in a
// cache. Strips begin at multiples of strip_rows(width) and go to threads.
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

// Counts what was lost between `values` and the block that they were encoded into. `residual`: becomes values - decoded
// where it is given; it may be `values` itself.
void account(const Codec& codec, const float* values, int64_t rows, int64_t width, const std::byte* encoded,
             CodecHealth& health, float* residual = nullptr);

}  // namespace lmx::comm
