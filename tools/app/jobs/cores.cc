#include "app/jobs/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "app/records/records.h"
#include "recipe/comm_config.h"

namespace lmx_cli::jobs {
namespace {

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// Returns the number of threads for `cores`, limited by the user's own OMP_NUM_THREADS.
std::string threads_on(size_t cores) {
  const char* set = std::getenv("OMP_NUM_THREADS");
  const auto wanted = set ? lmx::parse_int(set) : std::nullopt;
  const auto most = static_cast<int64_t>(cores);
  return std::to_string(wanted && *wanted > 0 ? std::min(*wanted, most) : most);
}

}  // namespace

int64_t own_core_count() {
  return static_cast<int64_t>(own_cores().size());
}

Demand demand_of(const lmx::Node& recipe) {
  const auto number = [&](const char* path) { return static_cast<int64_t>(number_at(recipe, path)); };
  const lmx::Node* comm = recipe.find("comm");
  const bool processes = comm && !lmx::train::in_one_process(*comm, "comm");
  return {processes ? std::max<int64_t>(1, number("comm.ranks")) : 1, number("threads")};
}

Cores::Cores(int64_t jobs, size_t children) : free_(own_cores()), all_(free_.size()) {
  const size_t most = std::max<size_t>(1, std::min(static_cast<size_t>(std::max<int64_t>(1, jobs)), children));
  bound_ = most <= all_;
  share_ = std::max<size_t>(1, all_ / most);
}

size_t Cores::need(const Demand& demand) const {
  const auto asked = static_cast<size_t>(demand.processes * std::max<int64_t>(1, demand.threads));
  return std::min(all_, std::max(share_, asked));
}

bool Cores::free_for(const Demand& demand) const {
  return !bound_ || need(demand) <= free_.size();
}

Surroundings Cores::take(const Demand& demand) {
  Surroundings around;
  if (bound_) {
    const auto end = free_.begin() + static_cast<std::ptrdiff_t>(std::min(need(demand), free_.size()));
    around.cores.assign(free_.begin(), end);
    free_.erase(free_.begin(), end);
  }
  // MPI ranks divide their cores among themselves.
  if (demand.processes == 1)
    around.environment.emplace_back("OMP_NUM_THREADS", threads_on(std::max<size_t>(1, around.cores.size())));
  return around;
}

void Cores::give_back(const std::vector<int>& cores) {
  free_.insert(free_.end(), cores.begin(), cores.end());
  std::sort(free_.begin(), free_.end());
}

}  // namespace lmx_cli::jobs
