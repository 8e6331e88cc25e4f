// The codecs that have a file of their own, and what all share.
#pragma once

#include <memory>

#include "lmx/codec.h"

namespace lmx::comm {

inline constexpr int64_t kCodecGrain = 1 << 15;  // values of a thread's share, at least

std::unique_ptr<Codec> make_fp16(float scale, bool reduce_in_fp16);
std::unique_ptr<Codec> make_one_bit();

// Counts what was lost between `values` and the block that they were encoded into. `residual`: becomes values - decoded
// where it is given; it may be `values` itself.
LMX_API void account(const Codec& codec, const float* values, int64_t rows, int64_t width, const std::byte* encoded,
                     CodecHealth& health, float* residual = nullptr);

}  // namespace lmx::comm
