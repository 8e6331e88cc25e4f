#include "app/memory/batch_fit.h"

#include <algorithm>
#include <span>
#include <utility>

#include "app/memory/preflight.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx {

using namespace train;

namespace {

int64_t share_of(int64_t global, int ranks) {
  return (global + ranks - 1) / ranks;
}

// The largest number in [least, most] for which `fits` holds, if it holds for all smaller ones; 0: for none.
template <class Fits>
int64_t search(int64_t least, int64_t most, Fits&& fits) {
  if (!fits(least)) return 0;
  int64_t good = least, bad = most + 1;
  while (good * 2 < bad) {  // from below, because the estimate of a huge batch would overflow
    if (fits(good * 2))
      good *= 2;
    else
      bad = good * 2;
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace

BatchFit::BatchFit(const Recipe& recipe, int ranks, int ranks_per_node, int64_t tokens)
    : recipe_(recipe),
      ranks_(ranks),
      planner_(recipe, ranks, ranks_per_node),
      pairs_(planner_.batch().items == Items::sub_batches),
      item_tokens_(std::max<int64_t>(1, planner_.batch().item_tokens)) {
  const int64_t item = pairs_ ? item_tokens_ : 1;  // the size of an item
  const int64_t given = pairs_ ? recipe.batch.micro_tokens : recipe.batch.micro;
  least_ = pairs_ ? std::min(kSentence, item_tokens_) : 1;
  most_ = recipe.batch.global > 0 ? share_of(recipe.batch.global, ranks) * item
                                  : item * std::max<int64_t>(1, (tokens - 1) / (item_tokens_ * kFittedSteps * ranks));
  if (given > 0) {
    least_ = std::min(least_, given);
    most_ = std::min(most_, given);
  }
  allowed_ = estimate(least_).allowed(recipe, kFittedPart);
}

int64_t BatchFit::largest() const {
  if (allowed_ == 0) return most_;
  return search(least_, most_, [&](int64_t size) { return estimate(size).machine <= allowed_; });
}

std::string BatchFit::too_much() const {
  return too_much(str("the estimate for it is ", bytes_text(estimate(least_).machine)));
}

std::string BatchFit::too_much(const std::string& cause) const {
  const MemoryCheck check = estimate(least_);
  std::string classes;
  for (const auto& [name, bytes] : check.rank.classes())
    if (bytes > 0) classes += str(classes.empty() ? "" : ", ", name, " ", bytes_text(bytes));
  const std::string limit = recipe_.memory.budget > 0
                                ? str("memory.budget allows ", bytes_text(allowed_))
                                : str(check.there_text(), ", of which ", bytes_text(allowed_), " may be used");
  return str("[memory] batch.fit: out of memory even with passes of ",
             pairs_ ? str(least_, " target tokens") : "one sequence", ": ", cause,
             check.here > 1 ? str(" (", check.here, " ranks)") : "", ", and ", limit, ". By class",
             ranks_ > 1 ? ", for each rank: " : ": ", classes,
             ". Lower the size of the model, the state of the optimizer (sgd has least), ", "the batcher's ",
             pairs_ ? "sub-batches" : "length of a sequence", ", or train.eval_batch");
}

int64_t BatchFit::lower(int64_t size, const Rehearsal& failed) const {
  if (size > least_) return std::max(least_, size * 3 / 4);
  throw UserError(too_much(
      str("a probe of step ", failed.batch.step + 1, " (", failed.batch.shape, ") ended with '", failed.failure, "'")));
}

BatchConfig BatchFit::batch(int64_t size) const {
  BatchConfig batch = recipe_.batch;
  if (batch.global == 0) batch.global = ranks_ * (pairs_ ? std::max<int64_t>(1, size / item_tokens_) : size);
  (pairs_ ? batch.micro_tokens : batch.micro) = size;
  return batch;
}

int64_t BatchFit::cap(int64_t size, int64_t optimizer_now) const {
  const MemoryCheck check = estimate(size);
  return check.cap(allowed_, optimizer_now);
}

int64_t BatchFit::passes(int64_t size) const {
  const int64_t share = share_of(batch(size).global, ranks_) * (pairs_ ? item_tokens_ : 1);
  return (share + size - 1) / size;
}

int64_t BatchFit::tokens(int64_t size) const {
  return batch(size).global * item_tokens_;
}

std::string BatchFit::text(int64_t size) const {
  const int64_t global = batch(size).global;
  const auto count = [](int64_t n, const std::string& what) {
    return str(count_text(n), " ", what, n == 1 ? "" : "s");
  };
  const std::string accumulated = str(count_text(passes(size)), " accumulated",
                                      ranks_ > 1 ? str(" on each of ", ranks_, " ranks") : "", ": an update has ");
  if (pairs_)
    return str("passes of ", count(size, "target token"), ", at most ", accumulated,
               global == 1 ? "1 sub-batch" : str(count_text(global), " sub-batches"), ", at most ",
               count(tokens(size), "target token"));
  return str("passes of ", count(size, "sequence"), ", ", accumulated, count(global, "sequence"), ", ",
             count(tokens(size), "token"));
}

namespace {

// The smallest choice of any rank. UserError: a rank has none.
int64_t choose_together(const BatchFit& fit, Communicator& comm) {
  const auto own = comm.once<int64_t>([&] { return fit.largest(); });
  for (const std::string& text : comm.gather_texts(own > 0 ? "" : fit.too_much(), "control"))
    if (!text.empty()) throw UserError(text);
  const auto number = static_cast<double>(own);
  const std::vector<double> all = comm.gather_numbers(std::span(&number, 1), "control");
  return static_cast<int64_t>(*std::min_element(all.begin(), all.end()));
}

Rehearsal probe(Session& s, const BatchFit& fit, int64_t size) {
  const int64_t optimizer = s.memory().current[static_cast<size_t>(MemClass::optimizer)];
  return rehearse(s, largest_batch(s, 0), fit.cap(size, optimizer));
}

}  // namespace

FittedSession fit_session(const Recipe& recipe, Communicator& comm, int64_t tokens, const MakeSession& make) {
  const auto fit = comm.once<std::shared_ptr<const BatchFit>>(
      [&] { return std::make_shared<const BatchFit>(recipe, comm.size(), comm.nodes().per_node(), tokens); });
  int64_t size = choose_together(*fit, comm);
  FittedSession result;
  Recipe own = recipe;
  for (;;) {
    const int64_t before = std::exchange(own.batch, fit->batch(size)).global;
    if (result.session && before == own.batch.global) {
      result.session->recipe.batch = own.batch;
    } else {  // the batcher and the learning rate depend on the global batch
      result.session.reset();
      result.session = make(own);
    }
    const Rehearsal rehearsal = probe(*result.session, *fit, size);
    ++result.fit.probes;
    if (rehearsal.failure.empty()) {
      const int64_t estimate = fit->estimate(size).machine;
      result.fit = {own.batch,
                    fit->passes(size),
                    fit->tokens(size),
                    estimate,
                    fit->allowed(),
                    rehearsal.memory.total_peak,
                    result.fit.probes,
                    str("batch.fit: ", fit->text(size), "; the estimate is ", bytes_text(estimate),
                        fit->allowed() > 0 ? str(" of ", bytes_text(fit->allowed())) : "", "; the probe of ",
                        describe(rehearsal), result.fit.probes > 1 ? "; larger passes did not fit" : "")};
      return result;
    }
    if (comm.rank() == 0) log_info(str("batch.fit: no room for ", fit->text(size), ": ", rehearsal.failure));
    size = fit->lower(size, rehearsal);
  }
}

}  // namespace lmx
