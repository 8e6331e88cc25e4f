// Decisions of the gradient-sync strategies for a step, made before its forward pass; losses and models read them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lmx/random.h"

namespace lmx {

struct StepPlan {
  int64_t step = 0;
  RandomKey sampler_key = {};  // for the candidates of a sampled softmax: ranks with equal keys sample equal candidates
  // Tables of which only some rows get gradients in this step on this rank (Xiao 2017, section 3.1: V_all): those rows,
  // ascending. In a table that is absent, all rows get gradients.
  std::map<std::string, std::vector<int32_t>> rows = {};
};

}  // namespace lmx
