// The times of forward and backward passes, without data and without a training.
#pragma once

#include <optional>

#include "app/memory/outline.h"
#include "app/plan/machine.h"
#include "lmx/comm.h"

namespace lmx::plan {

// The recipe with the batch that is measured: with batch.fit=memory, the largest one that measure_pass() accepts on all
// ranks. Collective.
Recipe with_measured_batch(Communicator& comm, const Recipe& recipe, int ranks_here);

// Seconds of the forward and backward pass of the outline's shape over random words, with random parameters: until the
// slowest rank has ended, while all ranks compute. Nothing is updated or exchanged. Empty: `known` holds this pass,
// the pass needs more than half of the machine's memory, or the model or loss cannot run without data. Collective.
std::optional<MeasuredPass> measure_pass(Communicator& comm, const Recipe& recipe, const Outline& outline,
                                         const std::vector<MeasuredPass>& known, int ranks_here);

}  // namespace lmx::plan
