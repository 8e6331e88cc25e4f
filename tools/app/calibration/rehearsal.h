// The work of strategies on the exchange of gradients, measured without links and without a training.
#pragma once

#include <vector>

#include "app/plan/machine.h"
#include "recipe/recipe.h"

namespace lmx::plan {

// Runs the exchange of the recipe's rules between virtual ranks, with random gradients whose rows follow Zipf's law,
// and returns the processor time of a rank on each unit. `ranks`: those of the recipe's job; its share of the batch
// sets the rows. At most four virtual ranks are made. Empty: the rules exchange
// nothing, are asynchronous, or need more than half of the machine's memory.
std::vector<MeasuredExchange> rehearse_exchange(const Recipe& recipe, int ranks);

}  // namespace lmx::plan
