// Batches without data, and the work of strategies on the exchange of gradients, measured without links and without a
// training.
#pragma once

#include <cstdint>
#include <vector>

#include "app/memory/counted.h"
#include "app/plan/machine.h"
#include "recipe/recipe.h"

namespace lmx::app::calibration {

// A batch of `tokens` target tokens that drawn_words() draws: sequences of the outline's length, or sentence
// pairs of kSentence tokens on both sides.
Batch random_batch(const Outline& outline, int64_t tokens, uint64_t seed);

// Values from -0.43 to 0.52, the first of them after `start`. Times do not depend on values, unless these are zero or
// denormal.
Tensor noise(Context& ctx, const Shape& shape, float start = 0.3F, MemClass c = MemClass::activations);

// Runs the exchange of the recipe's rules between virtual ranks, with random gradients whose rows follow Zipf's law,
// and returns the processor time of a rank on each unit. `ranks`: those of the recipe's job; its share of the batch
// sets the rows. At most four virtual ranks are made. Empty: the rules exchange nothing, are asynchronous, or need more
// than half of the machine's memory.
std::vector<plan::MeasuredExchange> rehearse_exchange(const Recipe& recipe, int ranks);

}  // namespace lmx::app::calibration
