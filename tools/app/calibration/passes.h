// The times of forward and backward passes, without data and without a training.
#pragma once

#include <optional>

#include "app/memory/outline.h"
#include "app/plan/machine.h"
#include "lmx/context.h"

namespace lmx::plan {

// The recipe with the batch that is measured: with batch.fit=memory, the largest one that measure_pass() accepts on all
// ranks. Collective.
Recipe with_measured_batch(const Context& ctx, const Recipe& recipe, int ranks_here);

// Bytes of the memory in which a device computes; 0: not known.
int64_t memory_of(Device device);

// Seconds of the forward and backward pass of the outline's shape over random words, with random parameters: until the
// slowest rank has ended, while all ranks compute. On a GPU some passes follow each other without a wait, as in a run.
// Nothing is updated or exchanged. Empty: `known` holds this pass, the pass needs more than half of the memory of
// ctx.device, or the model or loss cannot run without data. Collective.
std::optional<MeasuredPass> measure_pass(const Context& ctx, const Recipe& recipe, const Outline& outline,
                                         const std::vector<MeasuredPass>& known, int ranks_here);

}  // namespace lmx::plan
