// Likelihood of a split under the full softmax.
#pragma once

#include <functional>

#include "data/dataset.h"
#include "recipe/components.h"

namespace lmx::train {

struct SplitScore {
  double nats = 0;       // sum over targets
  int64_t tokens = 0;    // targets
  bool complete = true;  // false: `interrupted` said stop
  double nll() const { return nats / static_cast<double>(tokens); }
  double ppl() const;
};

struct SplitPlan {
  std::string split = "valid";
  int64_t sequences = 32, length = 35;
  int64_t max_tokens = 0;  // 0: all
  bool carry = true;
  bool shards = false;  // the split's strings as `sequences` shards instead of the text in as many stretches
};

// Every token of `tokens` but the first is a target once. The ranks share the slots and each returns the whole score.
// `interrupted` is asked before each batch (may be empty), of shards before each window.
SplitScore score_split(const Context& ctx, const Network& network, const ParameterStore& params,
                       const TokenArray& tokens, const SplitPlan& plan, const std::function<bool()>& interrupted);

// A split's strings in an order that `seed` draws, as shards to be scored (Puri 2018). UserError: data without strings
// (words, parallel text), fewer strings than shards, a shard of one token.
StringShards shards_of_split(const TokenArray& tokens, const TextStrings& strings, int64_t shards, int64_t seed,
                             const std::string& split);

// Nats and targets of each shard.
using ShardScores = std::vector<SplitScore>;

// Each shard from a zero state, plan.length tokens at a time; every token of a shard but its first is a target (of its
// first max_tokens / shards ones). The ranks share the shards and each returns all scores.
ShardScores score_shards(const Context& ctx, const Network& network, const ParameterStore& params,
                         const StringShards& shards, const SplitPlan& plan, const std::function<bool()>& interrupted);

// score_split(), or with plan.shards the sum of score_shards(), drawn with kEvalSeed: all runs read the same shards.
inline constexpr int64_t kEvalSeed = 1;
SplitScore score_text(const Context& ctx, const Network& network, const ParameterStore& params,
                      const TokenArray& tokens, const TextStrings& strings, const SplitPlan& plan,
                      const std::function<bool()>& interrupted);

// Every target of `pairs`, </s> included, once: plan.sequences sentences of similar lengths at a time, which the ranks
// share out.
SplitScore score_pairs(const Context& ctx, const Network& network, const ParameterStore& params, const PairArray& pairs,
                       const SplitPlan& plan, const std::function<bool()>& interrupted);

// What would otherwise be found at the first validation, or when hours of training are over. UserError: a validation
// split without a token to predict, or with fewer strings than train.eval_shards needs.
void check_validation(const Recipe& recipe, const Dataset& data);

}  // namespace lmx::train
