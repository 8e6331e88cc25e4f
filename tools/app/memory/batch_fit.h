// `batch.fit: memory` of a run: the largest sub-batch that the estimate and a probe step allow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "app/memory/fit_sizes.h"
#include "app/memory/fitted_batch.h"
#include "app/memory/memory_check.h"
#include "train/loop/rehearsal.h"

namespace lmx {

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
  int64_t lower(int64_t size, const train::Rehearsal& failed) const;
  MemoryCheck estimate(int64_t size) const { return planner_->check(sizes_.batch(size)); }
  int64_t allowed() const { return allowed_; }  // bytes of the ranks on this machine; 0: unknown
  // The most bytes in use while a probe of this size runs (MemoryCheck::cap()).
  int64_t cap(int64_t size, int64_t optimizer_now) const;
  // "one pass of 12 sequences on each of 2 ranks: an update has ... (estimate for 2 ranks: 1.9 GB of 2.0 GB)".
  std::string text(int64_t size) const;

 private:
  std::string too_much(const std::string& cause) const;

  Recipe recipe_;
  std::shared_ptr<const MemoryPlanner> planner_;
  FitSizes sizes_;
  int64_t allowed_;
};

struct FittedSession {
  std::unique_ptr<train::Session> session;
  FittedBatch fit;
};
// Makes the session of a recipe, and makes all checks of the run that need no step.
using MakeSession = std::function<std::unique_ptr<train::Session>(const Recipe&)>;
// Chooses the batch of `recipe`, makes the session, and rehearses the largest batch of the first epoch until it fits.
// All ranks take the smallest choice of any rank. `tokens` as in FitSizes. UserError: as MemoryPlanner, or not even the
// smallest sub-batch fits; the message has the memory by class and the remedy. Collective.
FittedSession fit_session(const Recipe& recipe, Communicator& comm, int64_t tokens, const MakeSession& make);

}  // namespace lmx
