#include "train/evaluate.h"

#include <algorithm>
#include <cmath>

#include "train/carried_state.h"

namespace lmx::train {
namespace {

TokenArray first_tokens(const TokenArray& tokens, int64_t n) {
  if (n <= 0 || n >= tokens.size() || tokens.size() <= 2) return tokens;
  // One target needs two tokens.
  const auto part = tokens.tokens().first(static_cast<size_t>(std::max<int64_t>(n, 2)));
  return TokenArray::of({part.begin(), part.end()});
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
  CarriedState carried(quiet, *network.model, batches.slots());
  SplitScore score;
  for (int64_t i = 0; i < batches.batches(); ++i) {
    if (interrupted && interrupted()) {
      score.complete = false;
      return score;
    }
    const Batch batch = batches.batch(i, quiet.allocator);
    ModelState state = carried.gather(quiet, batch, plan.carry);
    const Var features = network.model->forward(quiet, params, batch, state);
    const Tensor nll = network.loss->evaluate(quiet, params, features.value(), batch.targets.reshape({batch.tokens()}));
    for (const float nats : nll.values<float>()) score.nats += nats;
    score.tokens += batch.tokens();
    carried.stage(batch, state);
    carried.commit();
  }
  return score;
}

}  // namespace lmx::train
