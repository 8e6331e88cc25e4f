// Whether a recipe's ranks fit into the memory of the machine, or of the device, on which they run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/memory/counted.h"
#include "train/loop/rehearsal.h"

namespace lmx::app {

// Determines how much memory this process may use.
struct MachineMemory {
  int64_t bytes = 0;  // 0: unknown
  std::string limit;  // the limit below the machine's memory, such as "the limit of its cgroup"; "": there is none
};

// Returns the minimum of the machine's memory, the limits of this process's cgroup and its parents (versions 1 and 2),
// and the limit of the address space (ulimit -v). `root` is the prefix of /proc and /sys.
MachineMemory machine_memory(const std::string& root = "");

struct MemoryCheck {
  CountedGroup group;  // in which the rank was counted
  RankMemory rank;
  bool in_turn = false;  // ranks of one process exchange gradients after backward, without the activations
  int ranks = 1;
  int here = 1;         // ranks known to be on this machine; 1 for processes that a launcher will start
  int64_t pairs = 0;    // bytes for messages between pairs of ranks, in one process
  int64_t machine = 0;  // bytes of the ranks on this machine
  MachineMemory there;
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
// "748 kB, more than memory.budget, 100 kB"; "" if the recipe has no budget, or the estimate is not above it.
std::string over_budget(const Recipe& recipe, const MemoryCheck& check);

// The components of a recipe without its data, for estimates with several batches. UserError: a component refuses the
// recipe, for example a batcher that accepts only its own text.
class MemoryPlanner {
 public:
  // UserError: as outline_of(), and a rule of `sync` that can only be planned.
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

// `train.preflight`: the largest batch of the epoch is computed once before training.

// `train.preflight: auto` computes the largest batch in runs of at least so many steps, whose estimate is above this
// part of the memory. In a shorter run it would cost more than a hundredth of the time. An estimate is within a factor
// of 1.25 of the memory that recipes of lmx need, so that a smaller one leaves no doubt.
inline constexpr int64_t kPreflightSteps = 100;
inline constexpr double kPreflightPart = 0.25;

struct PreflightChoice {
  bool on = false;
  std::string why;  // "train.preflight is true"
};
// `check`: the estimate; none if it is not possible. `steps`: of the run; 0: unknown until its data is open. `resumed`:
// the run continues from a checkpoint.
PreflightChoice choose_preflight(const Recipe& recipe, const std::optional<MemoryCheck>& check, int64_t steps,
                                 bool resumed);

// "step 7 (31 sentences with ...) took 1.2 s; peak memory 3.1 GB: parameters 1.0 GB, ...", without words for its
// purpose.
std::string describe(const Rehearsal& rehearsal);

// Collective: rehearses the largest batch of the epoch that begins at step `from`, and prints a line. Memory that the
// optimizer and the exchange will need and do not have yet is left free. OutOfMemory: it does not fit into the memory
// of the machine or the device, or into memory.budget; the message names the batch, the memory by class and the remedy.
void preflight(Session& session, int64_t from, const std::optional<MemoryCheck>& check);

}  // namespace lmx::app
