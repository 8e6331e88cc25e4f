// `batch.fit: memory`: the largest sub-batch that fits into memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/memory/fitted_batch.h"
#include "app/memory/memory_check.h"
#include "train/loop/rehearsal.h"

namespace lmx {

// The part of the memory that a chosen sub-batch may take if there is no memory.budget. The rest is for the process
// itself, for blocks that the allocator caches, and for the error of the estimate.
inline constexpr double kFittedPart = 0.9;
// A batch that is chosen as a whole (batch.global: 0) leaves at least so many steps in an epoch.
inline constexpr int64_t kFittedSteps = 100;

// Chooses `batch` of a recipe with `fit: memory`. The choice is a size: sequences of a forward pass or, for parallel
// text, target tokens. If the recipe gives batch.global, only the division of a rank's share into passes is chosen.
// Otherwise a rank's share is one pass, and the batch has as many items as all ranks together.
class BatchFit {
 public:
  // `tokens`: the tokens of the training split (parallel text: target tokens); used only if batch.global is 0.
  // UserError: as MemoryPlanner.
  BatchFit(const Recipe& recipe, int ranks, int ranks_per_node, int64_t tokens);
  int64_t least() const { return least_; }
  // The largest size whose estimate is at most the memory that is allowed; 0: none, and too_much() says why.
  int64_t largest() const;
  std::string too_much() const;
  // The next smaller size after a probe has failed. UserError: there is none.
  int64_t lower(int64_t size, const train::Rehearsal& failed) const;
  // The functions below are of a size above 0.
  BatchConfig batch(int64_t size) const;
  MemoryCheck estimate(int64_t size) const { return planner_.check(batch(size)); }
  int64_t allowed() const { return allowed_; }  // bytes of the ranks on this machine; 0: unknown
  // The most bytes in use while a probe runs (MemoryCheck::cap()).
  int64_t cap(int64_t size, int64_t optimizer_now) const;
  int64_t passes(int64_t size) const;  // of the rank with the largest share, at most
  int64_t tokens(int64_t size) const;  // of an update, at most
  // "passes of 12 sequences, 3 accumulated on each of 2 ranks: an update has 72 sequences, 2,520 tokens".
  std::string text(int64_t size) const;

 private:
  std::string too_much(const std::string& cause) const;

  Recipe recipe_;
  int ranks_;
  MemoryPlanner planner_;
  bool pairs_;
  int64_t item_tokens_;
  int64_t least_ = 1, most_ = 1, allowed_ = 0;
};

struct FittedSession {
  std::unique_ptr<train::Session> session;
  FittedBatch fit;
};
using MakeSession = std::function<std::unique_ptr<train::Session>(const Recipe&)>;
// Chooses the batch of `recipe`, makes the session, and rehearses the largest batch of the first epoch until it fits.
// All ranks take the smallest choice of any rank. `tokens` as in BatchFit. UserError: not even the smallest sub-batch
// fits; the message has the memory by class and the remedy. Collective.
FittedSession fit_session(const Recipe& recipe, Communicator& comm, int64_t tokens, const MakeSession& make);

}  // namespace lmx
