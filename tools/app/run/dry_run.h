// Determines the resources that a run needs, without running it: `lmx run --dry-run`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/datasets/open.h"
#include "lmx/config.h"

namespace lmx::app {

struct DryRun {
  std::string text;                // the output of `lmx run --dry-run`
  std::string parameters, memory;  // as printed: number of parameters, and estimated memory per rank ("1.2 GB")
  int64_t parameter_count = 0, memory_bytes = 0;  // the same two values as numbers
  std::vector<std::string> missing_data;          // reasons why missing data would end a run before its first step
  std::string missing_memory;  // memory that the ranks on this machine need, and memory of the device; "": enough
  std::string missing_device;  // why the recipe's device is not available on this machine; "": it is
  bool ready() const { return missing_data.empty() && missing_memory.empty() && missing_device.empty(); }
};
// Computes the parameter count and the memory estimate, and checks the data. UserError: an invalid recipe.
DryRun dry_run(const Node& composed, const std::string& name, DatasetChecks& checks);
// Builds the components of a recipe as dry_run() does, but looks neither for its data nor for memory. Returns the
// number of its parameters. UserError: an invalid recipe.
int64_t parameters_of(const Node& composed, const std::string& name);
// Returns the estimated bytes of the ranks of one process. 0: not known, because `batch.fit` chooses the batch by the
// memory that is there, or because a step has too many kernels to be counted. UserError: an invalid recipe.
int64_t process_bytes(const Node& composed, const std::string& name);

}  // namespace lmx::app
