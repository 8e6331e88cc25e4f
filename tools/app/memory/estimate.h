// The sizes of a recipe's step, from the recipe alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "data/drawn_text.h"
#include "lmx/batcher.h"
#include "recipe/components.h"

namespace lmx {

// Sizes for the rank with the largest part of the batch.
struct Shares {
  int ranks = 1;
  int64_t step_tokens = 0, vocab = 0;                                     // of all ranks
  int64_t sequences = 0, length = 1, own_tokens = 0, forward_tokens = 0;  // of the rank; of one forward pass of it
  bool pairs = false;  // a sequence is a sub-batch of sentence pairs with at most `length` target tokens
  int64_t passes() const { return std::max<int64_t>(1, (own_tokens + forward_tokens - 1) / forward_tokens); }
};
Shares shares_of(const Recipe& recipe, const BatchPlan& batch, int ranks);

using data::kSentence;

}  // namespace lmx
