// `train.preflight`: the largest batch of the epoch is computed once before training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/memory/memory_check.h"
#include "train/loop/rehearsal.h"

namespace lmx {

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
std::string describe(const train::Rehearsal& rehearsal);

// Collective: rehearses the largest batch of the epoch that begins at step `from`, and prints a line. Memory that the
// optimizer and the exchange will need and do not have yet is left free. OutOfMemory: it does not fit into the memory
// of the machine or the device, or into memory.budget; the message names the batch, the memory by class and the remedy.
void preflight(train::Session& session, int64_t from, const std::optional<MemoryCheck>& check);

}  // namespace lmx
