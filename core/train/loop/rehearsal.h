// A step that is computed before training, to find out whether its memory suffices.
#pragma once

#include <cstdint>
#include <string>

#include "train/session.h"

namespace lmx {

// The step of an epoch whose largest forward pass has the most tokens.
struct LargestBatch {
  int64_t step = 0;    // 0-based
  int64_t tokens = 0;  // of that pass, on both sides for parallel text
  std::string shape;   // "31 sentences, 812 source and 3,401 target tokens, ..."
};
// Searches the epoch that begins at step `from`, up to the last step of the run, over all ranks. Sentences are not
// padded, so that tokens decide. Sequences are equally long unless the batcher's step_size() differs between steps; for
// sub-batches of a batcher that is no PairBatcher, step_size() decides, too. Every rank gets the same result.
LargestBatch largest_batch(const Session& session, int64_t from);

struct Rehearsal {
  LargestBatch batch;
  double seconds = 0;   // on the slowest rank
  MemoryStats memory;   // peaks of the rank with the highest total, since the process began
  std::string failure;  // the message of the first rank whose memory did not suffice; "": it did
};
// Computes forward and backward passes of this step on each rank, without exchange and update, and with at most `cap`
// bytes in use (0: no cap; see MemoryCap). Afterwards the session is as before, in every bit: random numbers are
// functions of the step, and gradients and states of the step are dropped. The ledger counts the collectives, so it
// must be cleared before the first step is trained. Collective.
Rehearsal rehearse(Session& session, const LargestBatch& batch, int64_t cap);

}  // namespace lmx
