// The length of a batcher's sequences before there is data.
#pragma once

#include <cstdint>

#include "lmx/config.h"

namespace lmx::train {

// Batcher::sequence_length() of the batcher that `batcher:` of a recipe names, over made-up text that is as long as the
// batcher needs; 0: it takes sub-batches. UserError: the batcher's own, if it refuses every made-up text.
int64_t planned_length(const Node& batcher);

}  // namespace lmx::train
