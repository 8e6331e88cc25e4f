// How the choice of a variant depends on the bandwidth between nodes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/plan/case.h"

namespace lmx::plan {

// Fills Plan::curves and Plan::crossings from the variants on the largest number of ranks. Variants that do not fit
// into the memory are left out. Both stay empty if all ranks are on one node.
void add_bandwidths(Plan& plan, const std::vector<std::pair<std::string, const Case*>>& variants);

}  // namespace lmx::plan
