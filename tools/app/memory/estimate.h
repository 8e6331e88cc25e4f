// The sizes of a recipe's step and the exchange of a rank, from the recipe alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/drawn_text.h"
#include "lmx/batcher.h"
#include "recipe/components.h"
#include "recipe/sync_rules.h"
#include "sync/unit_queue.h"

namespace lmx {

// Sizes for the rank with the largest part of the batch.
struct Shares {
  int ranks = 1;
  int64_t step_tokens = 0, vocab = 0;                                     // of all ranks
  int64_t sequences = 0, length = 1, own_tokens = 0, forward_tokens = 0;  // of the rank; of one forward pass of it
  int64_t samples = 0;  // words that the loss samples in addition to the targets; 0: it uses all words
  bool pairs = false;   // a sequence is a sub-batch of sentence pairs with at most `length` target tokens
  int64_t passes() const { return std::max<int64_t>(1, (own_tokens + forward_tokens - 1) / forward_tokens); }
  bool draws() const { return samples > 0; }  // only sampled rows of the output table are read
};
Shares shares_of(const Recipe& recipe, const BatchPlan& batch, const LossPlan& loss, int ranks);

using data::kSentence;

// The number of different words in a text of `tokens` tokens over a vocabulary. Default: expected_words() (Zipf's law).
using WordLaw = std::function<int64_t(int64_t tokens, int64_t vocabulary)>;
WordLaw zipf_law();

// The expected rows of a parameter in a step.
TableRows table_rows(const SyncRules& sync, const train::Network& network, const Shares& shares,
                     const ParameterSpec& spec, const WordLaw& law);

// The exchange of each unit in a step, in its order. Empty for one rank and for asynchronous rules.
std::vector<UnitPlan> exchange_of(const SyncRules& sync, const train::Network& network, const Shares& shares,
                                  const WordLaw& law = zipf_law());

}  // namespace lmx
