// A batcher before there is data.
#pragma once

#include <memory>

#include "lmx/batcher.h"
#include "lmx/config.h"

namespace lmx {

// The batcher that `batcher:` of a recipe names, over artificial text that is as long as the batcher needs: for its
// plan(), sequence_length() and carries_state(). UserError: the batcher's own, if it refuses every artificial text.
std::unique_ptr<Batcher> planned_batcher(const Node& batcher);

}  // namespace lmx
