// What the gradient-sync strategies decide for a step before its forward; losses and models read it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lmx/random.h"

namespace lmx {

struct StepPlan {
  int64_t step = 0;
  RandomKey sampler_key = {};  // of a sampled softmax's candidates: ranks with equal keys draw equal ones
  // Tables of which only some rows take gradients in this step on this rank (Xiao 2017, section 3.1: V_all), ascending.
  // A table that is absent takes them all.
  std::map<std::string, std::vector<int32_t>> rows = {};
};

}  // namespace lmx
