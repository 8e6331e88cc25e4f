// How much memory this process may have.
#pragma once

#include <cstdint>
#include <string>

namespace lmx::train {

struct MachineMemory {
  int64_t bytes = 0;  // 0: unknown
  std::string limit;  // what allows less than the machine has: "the limit of its cgroup"; "": the machine's own size
};

// The least of the machine's memory, the limits of this process's cgroup and of those above it (versions 1 and 2), and
// the limit on addresses (ulimit -v). `root` is where /proc and /sys are.
MachineMemory machine_memory(const std::string& root = "");

}  // namespace lmx::train
