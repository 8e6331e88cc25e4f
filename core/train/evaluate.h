// Likelihood of a split under the full softmax.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "data/dataset.h"
#include "recipe/components.h"
#include "recipe/metrics.h"

namespace lmx {

struct SplitScore {
  double nats = 0;                // sum over targets
  int64_t tokens = 0;             // number of targets
  bool complete = true;           // false: SplitPlan::interrupted returned true
  double bytes = 0;               // of the text of the targets; 0 or NaN: unknown
  std::vector<double> sums = {};  // of the metrics of the plan
  double nll() const { return nats / static_cast<double>(tokens); }
  double ppl() const;
  // Bits per byte of text, which can be compared between tokenizers; nullopt if the bytes are unknown.
  std::optional<double> bpb() const;
};

struct SplitPlan {
  std::string split = "valid";
  int64_t sequences = 32, length = 35;
  int64_t max_tokens = 0;  // 0: all
  bool carry = true;
  bool shards = false;  // score the split's strings as `sequences` shards, instead of the text in `sequences` stretches
  std::function<bool()> interrupted = {};    // scoring ends early if it returns true; may be empty
  std::span<const double> token_bytes = {};  // Dataset::token_bytes
  int32_t separator = -1;                    // the token before which sequences are cut into documents (separator_of())
  const Metrics* metrics = nullptr;          // null: none
};

// Scores each token of `tokens` except the first as a target, once. The slots are divided among the ranks, and each
// rank returns the score of the whole split. `plan.interrupted` is called before each batch, or before each
// window of shards.
SplitScore score_split(const Context& ctx, const Network& network, const ParameterStore& params,
                       const TokenArray& tokens, const SplitPlan& plan);

// The strings of a split as shards to be scored (Puri 2018), in an order that depends on `seed`. UserError: data
// without strings (words, parallel text), fewer strings than shards, a shard of one token.
StringShards shards_of_split(const TokenArray& tokens, const TextStrings& strings, int64_t shards, int64_t seed,
                             const std::string& split);

// Nats and number of targets of each shard.
using ShardScores = std::vector<SplitScore>;

// Scores each shard from a zero state, plan.length tokens at a time. Every token of a shard except its first is a
// target, up to max_tokens / shards targets of each shard. The shards are divided among the ranks, and each rank
// returns all scores.
ShardScores score_shards(const Context& ctx, const Network& network, const ParameterStore& params,
                         const StringShards& shards, const SplitPlan& plan);

// score_split(), or, if plan.shards is set, the sum of score_shards(). The shards are sampled with kEvalSeed, so that
// all runs use the same ones.
inline constexpr int64_t kEvalSeed = 1;
SplitScore score_text(const Context& ctx, const Network& network, const ParameterStore& params,
                      const TokenArray& tokens, const TextStrings& strings, const SplitPlan& plan);

// Scores every target of `pairs`, including </s>, once. A batch has plan.sequences sentences of similar lengths; the
// batches are divided among the ranks.
SplitScore score_pairs(const Context& ctx, const Network& network, const ParameterStore& params, const PairArray& pairs,
                       const SplitPlan& plan);

// Reports errors that would otherwise appear at the first validation, or after hours of training. UserError: a
// validation split without a token to predict, or with fewer strings than train.eval_shards needs.
void check_validation(const Recipe& recipe, const Dataset& data);

}  // namespace lmx
