// Sub-batches "of at most 3.5k tokens" (Ott et al. 2018, section 3): pairs sorted by length, divided where the next
// sentence would exceed the budget of target tokens. The seed decides once which sentences are together; the order of
// sub-batches is new in each epoch.
#include "lmx/pair_batches.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct TokenBudgetConfig : PairLimit {
  void fields(Fields& f) { PairLimit::fields(f, "target tokens of a sub-batch at most, </s> counted and padding not"); }
};

std::unique_ptr<Batcher> make_token_budget(const Node& config, const std::string& path, const BatcherEnv& env) {
  const auto c = read_config<TokenBudgetConfig>(config, path);
  int64_t skipped = 0;
  const std::vector<int64_t> order = pairs_by_length(env, c, "token_budget", path, skipped);
  const auto cut = [&](std::span<const int64_t> part) { return cut_by_tokens(env.pairs, part, c.max_tokens); };
  return std::make_unique<PairBatcher>(env, cut_parts(env, order, cut),
                                       PairBatcher::Options{.max_tokens = c.max_tokens, .skipped = skipped});
}

}  // namespace

LMX_PLUGIN(batcher, token_budget, TokenBudgetConfig, make_token_budget)
