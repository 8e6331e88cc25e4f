// Functions that the kernels of all codecs share on the CPU.
#pragma once

#include <functional>

#include "comm/codec/codecs.h"
#include "lmx/parallel.h"

namespace lmx::comm {

inline constexpr int64_t kCodecGrain = 1 << 15;  // smallest number of values for a thread

// `decode` writes the decoded rows [first, last) to `out`. It is called for a strip of rows at a time, so that the
// values stay in a cache.
using DecodeStrip = std::function<void(int64_t first, int64_t last, float* out)>;
void measure_strips(const Measured<float>& a, const DecodeStrip& decode);

}  // namespace lmx::comm
