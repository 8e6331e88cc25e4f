// The cores that this process may use, shared out to children that run side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "app/jobs/process.h"
#include "lmx/config.h"

namespace lmx_cli::jobs {

// What a recipe asks for.
struct Demand {
  int64_t processes = 1;  // that it starts (comm: mpi)
  int64_t threads = 0;    // of each; 0: as many as there are cores
};

// Of a recipe with every default.
Demand demand_of(const lmx::Node& recipe);

// Each of `jobs` children at a time, or of the `children` that there are, has its share, bound to it, and as many
// threads; one that asks for more has more, and fewer run beside it. With more jobs than cores each has one thread and
// none is bound: the kernel divides better than fixed places.
class Cores {
 public:
  Cores(int64_t jobs, size_t children);
  // Enough are left. Always true where no child runs.
  bool free_for(const Demand& demand) const;
  // For a child that begins now. Its `cores` go back once it has ended.
  Surroundings take(const Demand& demand);
  void give_back(const std::vector<int>& cores);

 private:
  size_t need(const Demand& demand) const;

  std::vector<int> free_;
  size_t all_, share_;
  bool bound_;
};

}  // namespace lmx_cli::jobs
