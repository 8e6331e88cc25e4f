// The length of a training text from a sample, for estimates of text that is not prepared.
#pragma once

#include <cstdint>
#include <optional>

#include "lmx/config.h"

namespace lmx {

// Returns about how many tokens the training split of `data` has: those of up to four parts of a megabyte, counted by
// the rules of `data`, in proportion to the bytes of the files. A subword of parallel text is taken as 4 bytes.
// Nothing: a missing corpus, compressed files, synthetic text.
std::optional<int64_t> sampled_train_tokens(const Node& data);

}  // namespace lmx
