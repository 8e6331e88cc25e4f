// The sizes, the memory, the work and the exchange of a recipe's ranks, found from the recipe alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/counting/record.h"
#include "data/drawn_text.h"
#include "lmx/batcher.h"
#include "lmx/param_server.h"
#include "lmx/tensor.h"
#include "recipe/components.h"
#include "recipe/exchanger.h"
#include "recipe/recipe.h"
#include "sync/unit_queue.h"

namespace lmx::app {

// The sizes of a recipe's step, from the recipe alone.

// Sizes for the rank with the largest part of the batch.
struct Shares {
  int ranks = 1;
  int64_t step_tokens = 0, vocab = 0;                                     // of all ranks
  int64_t sequences = 0, length = 1, own_tokens = 0, forward_tokens = 0;  // of the rank; of one forward pass of it
  bool pairs = false;  // a sequence is a sub-batch of sentence pairs with at most `length` target tokens
  int64_t passes() const { return std::max<int64_t>(1, (own_tokens + forward_tokens - 1) / forward_tokens); }
};
Shares shares_of(const Recipe& recipe, const BatchPlan& batch, int ranks);

// The components and sizes of a recipe on a number of ranks, for estimates without its data.
struct Outline {
  Network network;
  std::unique_ptr<Exchanger> sync;  // as on rank 0
  BatchPlan batch;
  Shares shares;
};
// `ranks_per_node`: as in SyncEnv. UserError: the recipe's components, patterns or rules do not fit each other.
Outline outline_of(const Recipe& recipe, int ranks, int ranks_per_node);

// The memory, the work and the exchange of a recipe's ranks, found by making two steps of it on a device without
// memory, over drawn text.

// Bytes of one rank in two steps and in a validation of one batch. `training.peak` and `evaluation.peak` are the most
// of each class, which they do not reach at one time.
struct RankMemory {
  MemoryStats training, evaluation;
  int64_t total() const { return std::max(training.total_peak, evaluation.total_peak); }
  int64_t of(MemClass c) const;
  // The classes with their names for users.
  std::array<std::pair<const char*, int64_t>, kMemClasses> classes() const;
};

// Where a step is counted.
struct CountedGroup {
  Device::Kind device = Device::Kind::cpu;
  int ranks = 1;
  int64_t per_node = 0;                // consecutive ranks of a node; 0: all
  std::function<Dataset()> open = {};  // the text of the recipe; empty: words are drawn
  WordLaw law = {};                    // of the words that are drawn
};

// A rank's passes in these steps, its exchange, and what it needs.
struct RankCount {
  RankMemory memory;
  int64_t state = 0;  // bytes of the optimizer's state of all values, of which a worker of a server has a part
  CountedPass pass;   // the largest one
  CountedPass last;   // with the times at which gradients are complete
  std::vector<UnitTime> units;  // in the order of the exchange, without times; empty for one rank and for workers
  ServerBytes server;           // of a worker
  std::map<std::string, int64_t> rows;   // by parameter: those that an update changes, or that a worker pushes
  std::vector<CountedWork> update = {};  // an update of the optimizer
};

// The rank with the largest share of the batch, which is a separate process. `plan`: of the recipe's batcher.
// UserError: a component refuses the recipe, or a size is too large to be counted.
RankCount count_rank(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group);

// Ranks that are threads of one process, and share parameters and the state of the optimizer.
struct ProcessMemory {
  RankMemory rank;    // with what it shares
  int64_t total = 0;  // of all ranks, of which `at_once` compute at one time
  int64_t pairs = 0;  // beside tensors: places of the parts that each rank keeps for each other one
};
ProcessMemory count_process(const Recipe& recipe, const BatchPlan& plan, const CountedGroup& group, int64_t at_once);

}  // namespace lmx::app
