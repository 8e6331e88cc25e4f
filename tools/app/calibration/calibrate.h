// Measures the machine on which it runs, as a file of the group `machine`.
#pragma once

#include <vector>

#include "app/plan/machine.h"
#include "lmx/comm.h"
#include "recipe/recipe.h"

namespace lmx::plan {

// Measures the device of the recipes, which have the same one, on all ranks at the same time, since they share the
// machine: the products of the recipes' passes, the bandwidth of the memory, and the least time of an op; on CPUs, how
// the ranks share cores, and their own work on exchanges with the recipes' strategies (rehearsal.h); and the links
// between the ranks. With batch.fit=memory, the measured passes are the largest ones that take half of the memory.
// Nothing is trained. The values are rank 0's. `ranks_per_node`: as the launcher states it. UserError: several ranks on
// GPUs. Collective.
Machine calibrate(const std::vector<Recipe>& recipes, Communicator& comm, int ranks_per_node);

}  // namespace lmx::plan
