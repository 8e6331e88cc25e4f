// The components and sizes of a recipe on a number of ranks, for estimates without its data.
#pragma once

#include <memory>

#include "app/memory/estimate.h"
#include "recipe/exchanger.h"

namespace lmx {

struct Outline {
  train::Network network;
  std::unique_ptr<Exchanger> sync;  // as on rank 0
  BatchPlan batch;
  Shares shares;
};
// `ranks_per_node`: as in SyncEnv. UserError: the recipe's components, patterns or rules do not fit each other.
Outline outline_of(const Recipe& recipe, int ranks, int ranks_per_node);

}  // namespace lmx
