#include "app/memory/batch_fit.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "app/memory/counted.h"
#include "app/memory/memory_check.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "tensor/caching_allocator.h"

namespace lmx::app {
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

BatchFit::BatchFit(const Recipe& recipe, std::shared_ptr<const MemoryPlanner> planner, int64_t tokens)
    : recipe_(recipe),
      planner_(std::move(planner)),
      sizes_(recipe, planner_->outline().batch, planner_->outline().shares.ranks, tokens),
      allowed_(estimate(sizes_.least()).allowed(recipe, kFittedPart)) {}

int64_t BatchFit::largest() const {
  if (allowed_ == 0) return sizes_.most();
  return sizes_.largest([&](const BatchConfig& batch) {
    try {
      return planner_->check(batch).machine <= allowed_;
    } catch (const UserError&) {  // The smallest batch has been counted, so this one is too large for that.
      return false;
    }
  });
}

int64_t BatchFit::cheapest() const {
  return sizes_.cheapest([this](const BatchConfig& batch) { return planner_->check(batch).machine; });
}

std::string BatchFit::too_much() const {
  return too_much(str("the estimate for it is ", bytes_text(estimate(cheapest()).machine)));
}

std::string BatchFit::too_much(const std::string& cause) const {
  const int64_t size = cheapest();
  const MemoryCheck check = estimate(size);
  const std::string limit = recipe_.memory.budget > 0
                                ? str("memory.budget allows ", bytes_text(allowed_))
                                : str(check.there_text(), ", of which ", bytes_text(allowed_), " may be used");
  return str("[memory] batch.fit: out of memory even with passes of ", sizes_.text(size), ": ", cause,
             check.here > 1 ? str(" (", check.here, " ranks)") : "", ", and ", limit, ". By class",
             check.ranks > 1 ? ", for each rank: " : ": ", class_text(check.rank.classes()),
             ". Lower the size of the model, the state of the optimizer (sgd has least), ", "the batcher's ",
             sizes_.pairs() ? "sub-batches" : "length of a sequence", ", or train.eval_batch");
}

int64_t BatchFit::lower(int64_t size, const Rehearsal& failed) const {
  if (const int64_t next = sizes_.lower(size); next > 0) return next;
  throw UserError(too_much(
      str("a probe of step ", failed.batch.step + 1, " (", failed.batch.shape, ") ended with '", failed.failure, "'")));
}

std::string BatchFit::text(int64_t size, const MemoryCheck& check) const {
  const std::string whose = check.here > 1    ? str(" for ", check.here, " ranks:")
                            : check.ranks > 1 ? " for one rank:"
                                              : "";
  return str(sizes_.update_text(size), " (estimate", whose, " ", bytes_text(check.machine),
             allowed_ > 0 ? str(" of ", bytes_text(allowed_)) : "", sizes_.limit_text(size), ")");
}

namespace {

// Estimates fork, and threads do not exist in the child: a mutex that another one holds stays locked there. So ranks
// that are threads make an estimate in once(), where the others wait.

// The smallest choice of any rank. UserError: a rank has none.
int64_t choose_together(const BatchFit& fit, Communicator& comm) {
  const auto [own, too_much] = comm.once<std::pair<int64_t, std::string>>([&] {
    const int64_t size = fit.largest();
    return std::pair(size, size > 0 ? "" : fit.too_much());
  });
  for (const std::string& text : comm.gather_texts(too_much, "control"))
    if (!text.empty()) throw UserError(text);
  const auto number = static_cast<double>(own);
  const std::vector<double> all = comm.gather_numbers(std::span(&number, 1), "control");
  return static_cast<int64_t>(*std::min_element(all.begin(), all.end()));
}

// The session with this batch, made from the one that is given where it can be.
void set_batch(std::unique_ptr<Session>& session, Recipe& recipe, const BatchConfig& batch, const MakeSession& make) {
  const int64_t before = std::exchange(recipe.batch, batch).global;
  if (session && before == batch.global) {
    session->recipe.batch = batch;
    return;
  }
  session.reset();  // the batcher and the learning rate depend on the global batch
  session = make(recipe);
}

FittedBatch fitted(const BatchFit& fit, int64_t size, const MemoryCheck& check, const Rehearsal& probe,
                   int64_t probes) {
  const FitSizes& sizes = fit.sizes();
  return {sizes.batch(size),
          sizes.passes(size),
          sizes.tokens(size),
          check.machine,
          fit.allowed(),
          probe.memory.total_peak,
          probes,
          str("batch.fit: ", fit.text(size, check), "; the probe of ", describe(probe),
              probes > 1 ? "; larger passes did not fit" : "")};
}

}  // namespace

FittedSession fit_session(const Recipe& recipe, Communicator& comm, int64_t tokens, const MakeSession& make) {
  const auto fit = comm.once<std::shared_ptr<const BatchFit>>([&] {
    return std::make_shared<const BatchFit>(
        recipe, std::make_shared<const MemoryPlanner>(recipe, comm.size(), comm.nodes().per_node()), tokens);
  });
  int64_t size = choose_together(*fit, comm);
  FittedSession result;
  Recipe own = recipe;
  for (int64_t probes = 1;; ++probes) {
    set_batch(result.session, own, fit->sizes().batch(size), make);
    Session& s = *result.session;
    const auto check = comm.once<MemoryCheck>([&] { return fit->estimate(size); });
    if (comm.rank() == 0) log_info(str("batch.fit: probe ", probes, ": ", fit->text(size, check)));
    const int64_t optimizer = s.memory().current[static_cast<size_t>(MemClass::optimizer)];
    const Rehearsal rehearsal = rehearse(s, largest_batch(s, 0), check.cap(fit->allowed(), optimizer));
    if (rehearsal.failure.empty()) {
      result.fit = fitted(*fit, size, check, rehearsal, probes);
      return result;
    }
    if (comm.rank() == 0)
      log_info(str("batch.fit: no room for passes of ", fit->sizes().text(size), ": ", rehearsal.failure));
    size = comm.once<int64_t>([&] { return fit->lower(size, rehearsal); });
  }
}

}  // namespace lmx::app
