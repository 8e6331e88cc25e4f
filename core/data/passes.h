// The forward passes over a step of parallel text, if their size does not follow from the sub-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lmx/batcher.h"

namespace lmx {

// Divides sentences, in order, into passes of as many as have at most `tokens` target tokens together; a longer
// sentence is a separate pass. Returns one past the last sentence of each pass. REQUIRES: tokens > 0.
std::vector<size_t> pass_ends(std::span<const int64_t> target_lengths, int64_t tokens);

// The sentences of all `items`, which are sub-batches of parallel text, in the same order as batches of such passes.
// Slots stay with their sentences, so that the sum of the gradients differs by rounding alone.
std::vector<Batch> in_passes(std::span<const Batch> items, int64_t tokens, const std::shared_ptr<Allocator>& allocator);

}  // namespace lmx
