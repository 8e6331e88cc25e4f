// Measures the machine on which it runs, as a file of the group `machine`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/plan/machine.h"
#include "app/records/records.h"
#include "lmx/comm.h"
#include "lmx/dtype.h"
#include "recipe/recipe.h"

namespace lmx::app::calibration {

// The curve of a device's products, for sizes that were not measured.

// Sets peak, efficiency and half_size, and product_us of a GPU, so that DeviceConfig::product_s() follows the measured
// products. The largest rate is the peak; half_size is the median of what the rates imply. A product of few rows takes
// a GPU longer than its operands take to arrive, since it cannot fill all processors: product_us is the median of this
// difference over the products whose operands take longer than their arithmetic, and is left out of the rates.
// REQUIRES: device.kind, device.memory_gb_s; at least one product.
void fit_products(plan::DeviceConfig& device, const std::vector<plan::MeasuredProduct>& products, DType compute);

// Measures the device of the recipes, which have the same one, on all ranks at the same time, since they share the
// machine: the products of the recipes' passes, the bandwidth of the memory, and the least time of an op; on CPUs, how
// the ranks share cores, and their own work on exchanges with the recipes' strategies (rehearsal.h); and the links
// between the ranks. With batch.fit=memory, the measured passes are the largest ones that take half of the memory.
// Nothing is trained. The values are rank 0's. `ranks_per_node`: as the launcher states it. UserError: several ranks on
// GPUs. Collective.
plan::Machine calibrate(const std::vector<Recipe>& recipes, Communicator& comm, int ranks_per_node);

// The planned memory of a run's recipe beside the memory that the run has recorded.

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
Json json_of(const ComparedMemory& compared);

// Plans the recipe of the run in that folder, with its own kind of ranks. The numbers of rows of its tables are the
// largest of the run's records. `machine`: its measured passes give the memory of passes; without it or without such a
// pass the memory is estimated. UserError: no run, no record of a rank, an asynchronous recipe.
ComparedMemory compare_memory(const std::string& run, const std::optional<plan::Machine>& machine);

}  // namespace lmx::app::calibration
