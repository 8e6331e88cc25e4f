// `batch.fit: memory` of a run: the largest sub-batch that the estimate and a probe step allow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "app/memory/memory_check.h"
#include "lmx/batcher.h"
#include "recipe/recipe.h"
#include "train/loop/rehearsal.h"

namespace lmx::app {

// The batch that `batch.fit` has chosen, and how it came about.
struct FittedBatch {
  BatchConfig batch;
  int64_t passes = 0, tokens = 0;               // of a rank and of an update, at most
  int64_t estimate = 0, allowed = 0, peak = 0;  // bytes: on this machine; allowed there; of the probe on a rank
  int64_t probes = 0;
  std::string text;  // for the user
};

// The sub-batches from which `batch.fit: memory` chooses, and the search for the largest one that fits.

// The part of the memory that a chosen sub-batch may take if there is no memory.budget. The rest is for the process
// itself, for blocks that the allocator caches, and for the error of the estimate.
inline constexpr double kFittedPart = 0.9;
// A batch that is chosen as a whole (batch.global: 0) leaves at least so many steps in an epoch.
inline constexpr int64_t kFittedSteps = 100;
// Tokens of a training split whose size is unknown: the memory alone limits the batch.
inline constexpr int64_t kUnknownTokens = int64_t{1} << 50;

// A choice is a size: sequences of a forward pass or, for parallel text, target tokens. If the recipe gives
// batch.global, only the division of a rank's share into passes is chosen. Otherwise a rank's share is one pass, and
// the batch has as many items as all ranks together. batch.micro or batch.micro_tokens of the recipe limits the choice.
class FitSizes {
 public:
  // `plan`: of the recipe's batcher. `tokens`: the tokens of the training split (parallel text: target tokens); used
  // only if batch.global is 0.
  FitSizes(const Recipe& recipe, const BatchPlan& plan, int ranks, int64_t tokens);
  int64_t least() const { return least_; }
  int64_t most() const { return most_; }
  // The largest size whose batch `fits`; 0: none was found. If the smallest size does not fit, sizes are doubled until
  // one does: a step in many small passes may need more memory, because each pass keeps its rows of a table's gradient.
  // REQUIRES: above the smallest size that fits, `fits` holds for all sizes below one for which it holds.
  int64_t largest(const std::function<bool(const BatchConfig&)>& fits) const;
  // The size with the fewest `bytes` among the smallest one and its doubles.
  int64_t cheapest(const std::function<int64_t(const BatchConfig&)>& bytes) const;
  // The next smaller size to try; 0: there is none.
  int64_t lower(int64_t size) const;

  // The functions below are of a size above 0.
  BatchConfig batch(int64_t size) const;
  int64_t passes(int64_t size) const;  // of the rank with the largest share, at most
  int64_t tokens(int64_t size) const;  // of an update, at most
  // "12 sequences", "1 target token".
  std::string text(int64_t size) const;
  // "passes of 12 sequences, 3 accumulated on each of 2 ranks: an update has 72 sequences, 2,520 tokens"; "one pass of
  // 36 sequences on each of ...".
  std::string update_text(int64_t size) const;
  // "; batch.micro allows no more": why a larger size is not tried, if neither the memory nor batch.global is the
  // reason.
  std::string limit_text(int64_t size) const;
  bool pairs() const { return pairs_; }

 private:
  int64_t doubled(int64_t size) const;  // the next size to try from below; the same one: there is none

  BatchConfig given_;
  int ranks_;
  bool pairs_;
  int64_t item_tokens_;
  int64_t least_ = 1, most_ = 1;
};

// Chooses `batch` of a recipe with `fit: memory` by the estimate of the memory of this machine, or of its device.
class BatchFit {
 public:
  // `planner`: of the recipe. `tokens`: as in FitSizes.
  BatchFit(const Recipe& recipe, std::shared_ptr<const MemoryPlanner> planner, int64_t tokens);
  const FitSizes& sizes() const { return sizes_; }
  // The largest size whose estimate is at most the memory that is allowed; 0: none, and too_much() says why.
  int64_t largest() const;
  // The size with the least estimate.
  int64_t cheapest() const;
  std::string too_much() const;
  // The next smaller size after a probe has failed. UserError: there is none.
  int64_t lower(int64_t size, const Rehearsal& failed) const;
  MemoryCheck estimate(int64_t size) const { return planner_->check(sizes_.batch(size)); }
  int64_t allowed() const { return allowed_; }  // bytes of the ranks on this machine; 0: unknown
  // "one pass of 12 sequences on each of 2 ranks: an update has ... (estimate for 2 ranks: 1.9 GB of 2.0 GB)".
  // `check`: the estimate of this size.
  std::string text(int64_t size, const MemoryCheck& check) const;

 private:
  std::string too_much(const std::string& cause) const;

  Recipe recipe_;
  std::shared_ptr<const MemoryPlanner> planner_;
  FitSizes sizes_;
  int64_t allowed_;
};

struct FittedSession {
  std::unique_ptr<Session> session;
  FittedBatch fit;
};
// Makes the session of a recipe, and makes all checks of the run that need no step.
using MakeSession = std::function<std::unique_ptr<Session>(const Recipe&)>;
// Chooses the batch of `recipe`, makes the session, and rehearses the largest batch of the first epoch until it fits.
// All ranks take the smallest choice of any rank. `tokens` as in FitSizes. UserError: as MemoryPlanner, or not even the
// smallest sub-batch fits; the message has the memory by class and the remedy. Collective.
FittedSession fit_session(const Recipe& recipe, Communicator& comm, int64_t tokens, const MakeSession& make);

}  // namespace lmx::app
