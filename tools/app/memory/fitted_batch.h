// The batch that `batch.fit` has chosen, and how it came about.
#pragma once

#include <cstdint>
#include <string>

#include "recipe/recipe.h"

namespace lmx {

struct FittedBatch {
  BatchConfig batch;
  int64_t passes = 0, tokens = 0;               // of a rank and of an update, at most
  int64_t estimate = 0, allowed = 0, peak = 0;  // bytes: on this machine; allowed there; of the probe on a rank
  int64_t probes = 0;
  std::string text;  // for the user
};

}  // namespace lmx
