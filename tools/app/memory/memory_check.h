// Whether a recipe's ranks fit into the memory of the machine, or of the device, on which they run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/memory/counted.h"
#include "app/memory/machine_memory.h"
#include "app/memory/outline.h"

namespace lmx {

struct MemoryCheck {
  CountedGroup group;  // in which the rank was counted
  RankMemory rank;
  bool in_turn = false;  // ranks of one process exchange gradients after backward, without the activations
  int ranks = 1;
  int here = 1;         // ranks known to be on this machine; 1 for processes that a launcher will start
  int64_t pairs = 0;    // bytes for messages between pairs of ranks, in one process
  int64_t machine = 0;  // bytes of the ranks on this machine
  train::MachineMemory there;
  std::string device_line;     // of a CUDA device: a line about it; "": the CPU
  std::string missing_device;  // why the recipe's device is not available
  bool on_device = false;      // `there` is the memory of a CUDA device, and `here` counts the ranks that share it
  // Bytes that a run may take: memory.budget or, if that is 0, `part` of the memory that is there; 0: unknown.
  int64_t allowed(const Recipe& recipe, double part = 1) const;
  // The most bytes that the pool of a rank's process may have in use while a step is computed, so that with the state
  // of the optimizer, of which `optimizer_now` bytes exist, and with the exchange between processes not more than
  // `allowed` bytes are used. 0: no limit is known.
  int64_t cap(int64_t allowed, int64_t optimizer_now) const;
  // "348 GB, and this machine has 25 GB"; "": enough.
  std::string missing() const;
  // "this machine has 25 GB", as a part of a sentence.
  std::string there_text() const;
  // The classes that take most, largest first: "activations 300 GB, parameters 40 GB".
  std::string largest() const;
};

// The components of a recipe without its data, for estimates with several batches. UserError: a component refuses the
// recipe, for example a batcher that accepts only its own text.
class MemoryPlanner {
 public:
  MemoryPlanner(const Recipe& recipe, int ranks, int ranks_per_node);
  const Outline& outline() const { return outline_; }  // its shares are those of the recipe's own batch
  // The shares and the estimate of the recipe with this batch.
  Shares shares(const BatchConfig& batch) const;
  MemoryCheck check(const BatchConfig& batch) const;
  // Floating-point operations of the products of a step, forward and backward, for each target.
  // `check`: the result of check() for the batch.
  double token_flops(const BatchConfig& batch, const MemoryCheck& check) const;

 private:
  Recipe recipe_;
  int per_node_;
  Outline outline_;
};

// To be called by each rank before a run allocates or writes anything. Rank 0 prints a warning if the estimate is
// larger than the memory. Returns the estimate; none if it is not possible before the data is open. UserError: it is
// larger than `memory.budget` of the recipe. Collective.
std::optional<MemoryCheck> require_memory(const Recipe& recipe, Communicator& comm);

}  // namespace lmx
