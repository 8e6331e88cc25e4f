// The planned memory of a run's recipe beside the memory that the run has recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/plan/machine.h"
#include "app/records/records.h"

namespace lmx::plan {

// Bytes of the rank with the most, by class and in total ("total").
struct ComparedClass {
  std::string name;
  int64_t planned = 0, measured = 0;
  double error() const;  // planned / measured - 1; 0 if neither has bytes
};
struct ComparedMemory {
  std::string recipe;
  int ranks = 1;
  int64_t steps = 0;                   // of the last record of the ranks
  std::vector<ComparedClass> classes;  // the last one is the total
  double total_error() const { return classes.back().error(); }
};
std::string text_of(const ComparedMemory& compared);
lmx_cli::Json json_of(const ComparedMemory& compared);

// Plans the recipe of the run in that folder, with its own kind of ranks. The numbers of rows of its tables are the
// largest of the run's records. `machine`: its measured passes give the memory of passes; without it or without such a
// pass the memory is estimated. UserError: no run, no record of a rank, an asynchronous recipe.
ComparedMemory compare_memory(const std::string& run, const std::optional<Machine>& machine);

}  // namespace lmx::plan
