// Batches without data, for calibrations.
#pragma once

#include <cstdint>

#include "app/memory/outline.h"

namespace lmx::plan {

// A batch of `tokens` target tokens that data::drawn_words() draws: sequences of the outline's length, or sentence
// pairs of kSentence tokens on both sides.
Batch random_batch(const Outline& outline, int64_t tokens, uint64_t seed);

// Values from -0.43 to 0.52, the first of them after `start`. Times do not depend on values, unless these are zero or
// denormal.
Tensor noise(Context& ctx, const Shape& shape, float start = 0.3F, MemClass c = MemClass::activations);

}  // namespace lmx::plan
