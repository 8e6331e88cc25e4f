// Batches without data, for calibrations.
#pragma once

#include <cstdint>
#include <vector>

#include "app/memory/outline.h"

namespace lmx::plan {

// Words of a vocabulary of that size, which follow Zipf's law: id w has about the probability 1 / ((w + 1) ln V).
std::vector<int32_t> zipf_words(uint64_t seed, int64_t count, int64_t vocabulary);
// A batch of `tokens` target tokens of such words: sequences of the outline's length, or sentence pairs of kSentence
// tokens on both sides.
Batch random_batch(const Outline& outline, int64_t tokens, uint64_t seed);

// Values from -0.43 to 0.52, the first of them after `start`. Times do not depend on values, unless these are zero or
// denormal.
Tensor noise(Context& ctx, const Shape& shape, float start = 0.3F, MemClass c = MemClass::activations);

}  // namespace lmx::plan
