// Determines how much memory this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace lmx::train {

struct MachineMemory {
  int64_t bytes = 0;  // 0: unknown
  std::string limit;  // the limit below the machine's memory, such as "the limit of its cgroup"; "": there is none
};

// Returns the minimum of the machine's memory, the limits of this process's cgroup and its parents (versions 1 and 2),
// and the limit of the address space (ulimit -v). `root` is the prefix of /proc and /sys.
MachineMemory machine_memory(const std::string& root = "");

}  // namespace lmx::train
