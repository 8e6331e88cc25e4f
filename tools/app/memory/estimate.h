// The sizes of a recipe's step, and the memory and the exchange of a rank, from the recipe alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

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
  bool blocks = false;  // logits are computed in blocks of bounded memory
  bool twice = false;   // the gradients of logits need separate memory (two_stage_softmax)
  bool pairs = false;   // a sequence is a sub-batch of sentence pairs with at most `length` target tokens
  bool draws() const { return samples > 0; }  // only sampled rows of the output table are read
};
Shares shares_of(const Recipe& recipe, const BatchPlan& batch, const LossPlan& loss, int ranks);

// Assumed tokens of each side of a pair, if only the total of many pairs is known: about the mean of news text in
// subwords.
inline constexpr int64_t kSentence = 28;

// The number of different words in a text of `tokens` tokens over a vocabulary. Default: expected_words() (Zipf's law).
using WordLaw = std::function<int64_t(int64_t tokens, int64_t vocabulary)>;
WordLaw zipf_law();

// The expected rows of a parameter in a step.
TableRows table_rows(const SyncRules& sync, const train::Network& network, const Shares& shares,
                     const ParameterSpec& spec, const WordLaw& law);

// The exchange of each unit in a step, in its order. Empty for one rank and for asynchronous rules.
std::vector<UnitPlan> exchange_of(const SyncRules& sync, const train::Network& network, const Shares& shares,
                                  const WordLaw& law = zipf_law());
// Bytes that the exchange needs on a rank: kept until the update, and at most passing at one time.
int64_t communication_bytes(const std::vector<UnitPlan>& exchange, int ranks);

// Estimated bytes of one rank, by class.
struct RankMemory {
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, copies = 0, communication = 0;
  // Ranks that are threads of one process exchange gradients after backward, when the activations have been released.
  bool in_turn = false;
  int64_t shared() const { return parameters + optimizer + copies; }  // by all ranks of one process
  int64_t own() const {
    return gradients + (in_turn ? std::max(activations, communication) : activations + communication);
  }
  int64_t total() const { return shared() + own(); }
  // The classes with their names for users.
  std::array<std::pair<const char*, int64_t>, 6> classes() const {
    return {{{"parameters", parameters},
             {"gradients", gradients},
             {"optimizer", optimizer},
             {"activations", activations},
             {"weights packed for products", copies},
             {"communication", communication}}};
  }
};
RankMemory rank_memory(const Recipe& recipe, const train::Network& network, const Shares& shares,
                       int64_t communication);

}  // namespace lmx
