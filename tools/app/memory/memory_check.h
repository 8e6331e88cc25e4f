// Whether a recipe's ranks fit into the memory of the machine, or of the device, on which they run.
#pragma once

#include <cstdint>
#include <string>

#include "app/memory/estimate.h"
#include "app/memory/machine_memory.h"
#include "app/memory/outline.h"

namespace lmx {

struct MemoryCheck {
  RankMemory rank;
  int ranks = 1;
  int here = 1;         // ranks known to be on this machine; 1 for processes that a launcher will start
  int64_t pairs = 0;    // bytes for messages between pairs of ranks, in one process
  int64_t machine = 0;  // bytes of the ranks on this machine
  train::MachineMemory there;
  std::string device_line;     // of a CUDA device: a line about it; "": the CPU
  std::string missing_device;  // why the recipe's device is not available
  // "348 GB, and this machine has 25 GB"; "": enough.
  std::string missing() const;
  // "25 GB of memory on this machine", as a part of a sentence.
  std::string there_text() const;
  // The classes that take most, largest first: "activations 300 GB, parameters 40 GB".
  std::string largest() const;
};
MemoryCheck check_memory(const Recipe& recipe, const Outline& outline);

// To be called by each rank before a run allocates or writes anything. Rank 0 prints a warning if the estimate is
// larger than the memory. UserError: it is larger than `memory.budget` of the recipe. Collective.
void require_memory(const Recipe& recipe, Communicator& comm);

}  // namespace lmx
