// Batchers: which tokens a step trains on, as a pure function of seed, epoch and step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/api.h"
#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/random.h"
#include "lmx/tensor.h"

namespace lmx {

// Sequences [first, first + B) of a step's global batch.
struct Batch {
  Tensor inputs;               // i32 (B, T)
  Tensor targets;              // i32 (B, T): the token after each input
  std::vector<int64_t> slots;  // (B) global slot of each sequence: where its recurrent state lives
  std::vector<uint8_t> fresh;  // (B) 1: the sequence starts with a zero state
  int64_t sequences() const { return inputs.dim(0); }
  int64_t tokens() const { return inputs.numel(); }
};

struct BatcherEnv {
  TokenArray tokens;
  int64_t global_batch = 1;  // sequences of a step over all ranks
  RandomKey key;
  std::shared_ptr<Allocator> allocator;
  std::string split = "train";
};

// Immutable after construction and thread-safe; nothing to checkpoint but the step.
class LMX_API Batcher {
 public:
  virtual ~Batcher();
  // Sequences [first, first + count) of the global batch of `step` (0-based, never ends: epochs follow each other).
  // REQUIRES: 0 <= first, first + count <= global batch.
  virtual Batch batch(int64_t step, int64_t first, int64_t count) const = 0;
  virtual int64_t steps_per_epoch() const = 0;
  virtual int64_t sequence_length() const = 0;
  virtual bool carries_state() const = 0;  // false: every sequence starts fresh
};

// The sequences tokens[start .. start + length] of each start: inputs without the last token, targets without the
// first. Slots are 0, 1, ... and nothing is fresh until the caller says so.
// REQUIRES: 0 <= start and start + length < tokens.size().
LMX_API Batch make_batch(const TokenArray& tokens, std::span<const int64_t> starts, int64_t length,
                         const std::shared_ptr<Allocator>& allocator);

// An evaluation: every token of a split but its first is a target exactly once, in as many contiguous slots as an
// evaluation batch has sequences. Slot s reads its part of the tokens in order, `length` at a time, its last window
// shorter where the part does not divide; what does not divide over the slots comes last, as one sequence that goes on
// where the last slot ended. State is carried; only the first window of a slot is fresh.
class LMX_API EvalPlan {
 public:
  // UserError: fewer than two tokens. With fewer tokens than `sequences`, fewer slots are used.
  EvalPlan(TokenArray tokens, int64_t sequences, int64_t length, const std::string& split = "valid");
  int64_t batches() const { return windows_ + extra_; }
  int64_t slots() const { return slots_; }
  int64_t targets() const { return tokens_.size() - 1; }  // over all batches
  // Those sequences of batch `index` whose slots lie in [first, first + count): a rank's part, possibly none (0, T).
  Batch batch(int64_t index, int64_t first, int64_t count, const std::shared_ptr<Allocator>& allocator) const;
  Batch batch(int64_t index, const std::shared_ptr<Allocator>& allocator) const {
    return batch(index, 0, slots_, allocator);
  }

 private:
  TokenArray tokens_;
  int64_t slots_ = 0, length_ = 0;
  int64_t part_ = 0;                 // inputs of a slot
  int64_t windows_ = 0, extra_ = 0;  // batches over all slots, and of what is left over
};

using BatcherFactory = std::unique_ptr<Batcher> (*)(const Node& config, const std::string& path, const BatcherEnv& env);

}  // namespace lmx
