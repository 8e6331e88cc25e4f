// What a run would need, without running it: `lmx run --dry-run`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx {

struct DryRun {
  std::string text;                // the output of `lmx run --dry-run`
  std::string parameters, memory;  // as printed: the count, and the estimate of a rank's memory ("1.2 GB")
  int64_t parameter_count = 0, memory_bytes = 0;  // the same as numbers
  std::vector<std::string> missing_data;          // reasons why a run would end before its first step for lack of data
  std::string missing_memory;  // the memory that the ranks of this machine need, and its own; "": enough
  bool ready() const { return missing_data.empty() && missing_memory.empty(); }
};
// Parameter count, memory estimate and data check. UserError: a wrong recipe.
DryRun dry_run(const Node& composed, const std::string& name);

}  // namespace lmx
