#include "train/evaluate.h"

#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "lmx/pair_batches.h"
#include "train/carried_state.h"

namespace lmx::train {
namespace {

TokenArray first_tokens(const TokenArray& tokens, int64_t n) {
  if (n <= 0 || n >= tokens.size() || tokens.size() <= 2) return tokens;
  // One target needs two tokens.
  const auto part = tokens.tokens().first(static_cast<size_t>(std::max<int64_t>(n, 2)));
  return TokenArray::of({part.begin(), part.end()});
}

SplitScore sum_over_ranks(const SplitScore& own, Communicator& comm) {
  const double numbers[] = {own.nats, static_cast<double>(own.tokens), own.complete ? 0.0 : 1.0};
  const std::vector<double> all = comm.gather_numbers(numbers, "control");
  SplitScore sum;
  for (size_t i = 0; i < all.size(); i += 3) {
    sum.nats += all[i];
    sum.tokens += static_cast<int64_t>(all[i + 1]);
    sum.complete = sum.complete && all[i + 2] == 0;
  }
  return sum;
}

}  // namespace

double SplitScore::ppl() const {
  return std::exp(nll());
}

SplitScore score_split(const Context& ctx, const Network& network, ParameterStore& params, const TokenArray& tokens,
                       const SplitPlan& plan, const std::function<bool()>& interrupted) {
  Context quiet = ctx;
  quiet.tape = nullptr;
  quiet.training = false;
  const EvalPlan batches(first_tokens(tokens, plan.max_tokens), plan.sequences, plan.length, plan.split);
  const int64_t first = chunk_begin(batches.slots(), ctx.rank, ctx.ranks);
  const int64_t count = chunk_begin(batches.slots(), ctx.rank + 1, ctx.ranks) - first;
  CarriedState carried(quiet, *network.model, first, count);
  SplitScore score;
  for (int64_t i = 0; i < batches.batches() && score.complete; ++i) {
    score.complete = !(interrupted && interrupted());
    const Batch batch = batches.batch(i, first, count, quiet.allocator);
    if (batch.sequences() == 0) continue;
    ModelState state = carried.gather(quiet, batch, plan.carry);
    const Var features = network.model->forward(quiet, params, batch, state);
    const Tensor nll = network.loss->evaluate(quiet, params, features.value(), batch.targets.reshape({batch.tokens()}));
    for (const float nats : nll.values<float>()) score.nats += nats;
    score.tokens += batch.tokens();
    carried.stage(batch, state);
    carried.commit();
  }
  return sum_over_ranks(score, *ctx.comm);
}

SplitScore score_pairs(const Context& ctx, const Network& network, ParameterStore& params, const PairArray& pairs,
                       const SplitPlan& plan, const std::function<bool()>& interrupted) {
  Context quiet = ctx;
  quiet.tape = nullptr;
  quiet.training = false;
  std::vector<int64_t> order;  // the split's first sentences, by length
  int64_t tokens = 0;
  for (int64_t i = 0; i < pairs.size() && (plan.max_tokens <= 0 || tokens < plan.max_tokens); ++i) {
    order.push_back(i);
    tokens += static_cast<int64_t>(pairs.target(i).size());
  }
  if (order.empty()) throw UserError(str("[eval] the ", plan.split, " split of this data holds no pairs of sentences"));
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::pair(pairs.target(a).size(), pairs.source(a).size()) <
           std::pair(pairs.target(b).size(), pairs.source(b).size());
  });
  SplitScore score;
  const int64_t count = (static_cast<int64_t>(order.size()) + plan.sequences - 1) / plan.sequences;
  for (int64_t i = 0; i < count && score.complete; ++i) {
    score.complete = !(interrupted && interrupted());
    if (i % ctx.ranks != ctx.rank) continue;
    const auto first = static_cast<size_t>(i * plan.sequences);
    const size_t end = std::min(order.size(), first + static_cast<size_t>(plan.sequences));
    const Batch batch = make_pair_batch(pairs, std::span(order).subspan(first, end - first), quiet.allocator);
    ModelState state = network.model->initial_state(quiet, batch.sequences());
    const Var features = network.model->forward(quiet, params, batch, state);
    const Tensor nll = network.loss->evaluate(quiet, params, features.value(), batch.targets);
    for (const float nats : nll.values<float>()) score.nats += nats;
    score.tokens += batch.tokens();
  }
  return sum_over_ranks(score, *ctx.comm);
}

}  // namespace lmx::train
