// Rank placement: host, process and cores of each rank of a job, exchanged once.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lmx::processes {

struct Placement {
  char host[64] = {};
  int64_t pid = 0;
  uint64_t pid_space = 0;  // PID namespace of `pid`; 0: unknown
  cpu_set_t cpus = {};     // cores on which the process may run
};

Placement own_placement();
std::vector<std::string> hosts_of(const std::vector<Placement>& placements);

// Threads for rank `self` if the ranks of a host divide its cores. Each core that the rank may use counts as 1 divided
// by the number of ranks that may use it. At least 1.
int fair_threads(const std::vector<Placement>& placements, int self);

// A descriptor that poll() reports when the process of `other` ends; -1 if there is none: another host, another PID
// namespace, an old kernel.
int open_process(const Placement& own, const Placement& other);

}  // namespace lmx::processes
