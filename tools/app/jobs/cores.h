// Divides the cores that this process may use among children that run at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "app/jobs/process.h"
#include "lmx/config.h"

namespace lmx_cli::jobs {

// The resources that a recipe requests.
struct Demand {
  int64_t processes = 1;  // processes that the recipe starts (comm: mpi)
  int64_t threads = 0;    // per process; 0: as many as there are cores
};

// Reads the demand of a recipe with every default.
Demand demand_of(const lmx::Node& recipe);

// The number of cores that this process may use.
int64_t own_core_count();

// `jobs` children (or `children` if this is fewer) run at a time. Each is bound to its share of the cores and has as
// many threads. A child that requests more gets more, and fewer run at the same time. If there are more jobs than
// cores, each child has one thread and none is bound, because the kernel's scheduling is better than fixed cores.
class Cores {
 public:
  Cores(int64_t jobs, size_t children);
  // Returns whether enough cores are free. Always true if no child runs.
  bool free_for(const Demand& demand) const;
  // Takes cores for a child that starts now. When it has ended, pass its `cores` to give_back().
  Surroundings take(const Demand& demand);
  void give_back(const std::vector<int>& cores);

 private:
  size_t need(const Demand& demand) const;

  std::vector<int> free_;
  size_t all_, share_;
  bool bound_;
};

}  // namespace lmx_cli::jobs
