// A key that changes nothing is told of.
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace lmx::train {

// Of a recurrent model with `checkpoint` whose one layer is one piece: what says so, and what would help; else "".
// `length`: tokens of a sequence of its batcher, 0 for sub-batches.
std::string idle_checkpoint(const Recipe& recipe, int ranks, int64_t length);

}  // namespace lmx::train
