// Likelihood of a split under the full softmax.
#pragma once

#include <functional>

#include "train/components.h"

namespace lmx::train {

struct LMX_API SplitScore {
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
};

// Every token of `tokens` but the first is a target once. The ranks share the slots and each returns the whole score.
// `interrupted` is asked before each batch (may be empty).
LMX_API SplitScore score_split(const Context& ctx, const Network& network, ParameterStore& params,
                               const TokenArray& tokens, const SplitPlan& plan,
                               const std::function<bool()>& interrupted);

// Nats and targets of each shard.
using ShardScores = std::vector<SplitScore>;

// Each shard from a zero state, `length` tokens at a time, all shards at once; every token of a shard but its first is
// a target. On one rank.
LMX_API ShardScores score_shards(const Context& ctx, const Network& network, ParameterStore& params,
                                 const StringShards& shards, int64_t length);

// Every target of `pairs`, </s> included, once: plan.sequences sentences of similar lengths at a time, which the ranks
// share out.
LMX_API SplitScore score_pairs(const Context& ctx, const Network& network, ParameterStore& params,
                               const PairArray& pairs, const SplitPlan& plan, const std::function<bool()>& interrupted);

}  // namespace lmx::train
