// Batchers: which tokens a step trains on, as a pure function of seed, epoch and step.
#pragma once

#include <cstdint>
#include <memory>
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
  Tensor inputs;                // i32 (B, T)
  Tensor targets;               // i32 (B, T): the token after each input
  std::vector<int64_t> slots;   // (B) global slot of each sequence: where its recurrent state lives
  std::vector<uint8_t> fresh;   // (B) 1: the sequence starts with a zero state
  int64_t sequences() const { return inputs.dim(0); }
  int64_t tokens() const { return inputs.numel(); }
};

struct BatcherEnv {
  TokenArray tokens;
  int64_t global_batch = 1;   // sequences of a step over all ranks
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

using BatcherFactory = std::unique_ptr<Batcher> (*)(const Node& config, const std::string& path, const BatcherEnv& env);

}  // namespace lmx
