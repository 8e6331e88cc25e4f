// The batches on which models are checked.
#pragma once

#include "lmx/model.h"

namespace lmx_cli::check {

inline constexpr int64_t kVocabulary = 23, kSequences = 3, kLength = 6;

// Returns sequences `first` to `last` of a text batch, positions `begin` to `end`.
lmx::Batch text_batch(int64_t first = 0, int64_t last = kSequences, int64_t begin = 0, int64_t end = kLength);

// Returns pairs of sentences of 4 and 3, 6 and 5, 8 and 7 words, including </s>.
lmx::Batch pair_batch(int64_t first = 0, int64_t last = kSequences);

}  // namespace lmx_cli::check
