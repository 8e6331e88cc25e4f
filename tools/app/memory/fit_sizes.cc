#include "app/memory/fit_sizes.h"

#include <algorithm>

#include "app/memory/estimate.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx {
namespace {

int64_t share_of(int64_t global, int ranks) {
  return (global + ranks - 1) / ranks;
}

std::string count_of(int64_t n, const std::string& what) {
  return str(count_text(n), " ", what, n == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

}  // namespace

FitSizes::FitSizes(const Recipe& recipe, const BatchPlan& plan, int ranks, int64_t tokens)
    : given_(recipe.batch),
      ranks_(ranks),
      pairs_(plan.items == Items::sub_batches),
      item_tokens_(std::max<int64_t>(1, plan.item_tokens)) {
  const int64_t item = pairs_ ? item_tokens_ : 1;  // the size of an item
  const int64_t limit = pairs_ ? given_.micro_tokens : given_.micro;
  least_ = pairs_ ? std::min(kSentence, item_tokens_) : 1;
  most_ = given_.global > 0 ? share_of(given_.global, ranks) * item
                            : item * std::max<int64_t>(1, (tokens - 1) / (item_tokens_ * kFittedSteps * ranks));
  if (limit > 0) {
    least_ = std::min(least_, limit);
    most_ = std::min(most_, limit);
  }
}

int64_t FitSizes::largest(const std::function<bool(const BatchConfig&)>& fits) const {
  const auto holds = [&](int64_t size) { return fits(batch(size)); };
  int64_t good = least_, bad = most_ + 1;
  for (; !holds(good); good = doubled(good))
    if (doubled(good) == good) return 0;
  while (good * 2 < bad) {  // from below, because the estimate of a huge batch would overflow
    if (holds(good * 2))
      good *= 2;
    else
      bad = good * 2;
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (holds(middle) ? good : bad) = middle;
  }
  return good;
}

int64_t FitSizes::cheapest(const std::function<int64_t(const BatchConfig&)>& bytes) const {
  int64_t best = least_, fewest = bytes(batch(best));
  for (int64_t size = best; doubled(size) != size;) {
    size = doubled(size);
    const int64_t needed = bytes(batch(size));
    if (needed < fewest) best = size, fewest = needed;
  }
  return best;
}

// A share that is one pass only grows with its size.
int64_t FitSizes::doubled(int64_t size) const {
  return given_.global > 0 ? std::min(2 * size, most_) : size;
}

int64_t FitSizes::lower(int64_t size) const {
  return size > least_ ? std::max(least_, size * 3 / 4) : 0;
}

BatchConfig FitSizes::batch(int64_t size) const {
  BatchConfig batch = given_;
  if (batch.global == 0) batch.global = ranks_ * (pairs_ ? std::max<int64_t>(1, size / item_tokens_) : size);
  (pairs_ ? batch.micro_tokens : batch.micro) = size;
  return batch;
}

int64_t FitSizes::passes(int64_t size) const {
  const int64_t share = share_of(batch(size).global, ranks_) * (pairs_ ? item_tokens_ : 1);
  return (share + size - 1) / size;
}

int64_t FitSizes::tokens(int64_t size) const {
  return batch(size).global * item_tokens_;
}

std::string FitSizes::text(int64_t size) const {
  return count_of(size, pairs_ ? "target token" : "sequence");
}

std::string FitSizes::update_text(int64_t size) const {
  const std::string most = pairs_ ? "at most " : "";
  const int64_t global = batch(size).global;
  const std::string there = ranks_ == 1       ? ""
                            : global < ranks_ ? str(" on ", global, " of ", ranks_, " ranks")
                                              : str(" on each of ", ranks_, " ranks");
  return str(passes(size) == 1
                 ? str("one pass of ", text(size), there)
                 : str("passes of ", text(size), ", ", most, count_text(passes(size)), " accumulated", there),
             ": an update has ", count_of(global, pairs_ ? "sub-batch" : "sequence"), ", ", most,
             count_of(tokens(size), pairs_ ? "target token" : "token"));
}

std::string FitSizes::limit_text(int64_t size) const {
  if (size < most_) return {};
  if (given_.global > 0 && passes(size) == 1) return {};
  if (size == (pairs_ ? given_.micro_tokens : given_.micro))
    return str("; ", pairs_ ? "batch.micro_tokens" : "batch.micro", " allows no more");
  return given_.global > 0 ? "" : str("; a larger batch would leave fewer than ", kFittedSteps, " steps in an epoch");
}

}  // namespace lmx
