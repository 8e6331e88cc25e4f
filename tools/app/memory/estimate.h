// The sizes of a recipe's step, and the memory and the exchange of a rank, from the recipe alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
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
  int64_t passes() const { return std::max<int64_t>(1, (own_tokens + forward_tokens - 1) / forward_tokens); }
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
// The memory that the exchange needs on a rank.
struct ExchangeMemory {
  ExchangeMemory(int64_t bytes = 0) : communication(bytes) {}
  int64_t communication = 0;  // the most at one time
  // While a unit is exchanged, in their order: `bytes` are kept or passing, of which `owned` exist once for each rank
  // also if ranks share memory.
  struct Stage {
    std::vector<std::string> params;
    int64_t bytes = 0, owned = 0;
  };
  std::vector<Stage> stages;
};
ExchangeMemory exchange_memory(const std::vector<UnitPlan>& exchange, int ranks);

// Bytes of the passes of a step, beside parameters and the state of the optimizer.
struct PassMemory {
  int64_t packed = 0;                      // copies of weights for products
  int64_t activations = 0, gradients = 0;  // the most of each class
  int64_t total = 0;                       // the most of both together
};

// Estimated bytes of one rank, by class.
struct RankMemory {
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, copies = 0, communication = 0;
  int64_t training = 0;      // activations of a step
  int64_t evaluation = 0;    // activations of a validation
  int64_t in_passes = 0;     // gradients and activations together, the most at one time
  int64_t after_passes = 0;  // gradients that a rank keeps after its passes
  // While units are exchanged, one after the other: gradients that are not exchanged yet and communication together.
  // `owned`: the part that exists once for each rank, also if ranks share memory.
  struct Stage {
    int64_t all = 0, owned = 0;
  };
  std::vector<Stage> exchange;
  int64_t in_exchange() const;
  // Ranks that are threads of one process exchange gradients after backward, when the activations have been released.
  bool in_turn = false;
  void leave_out_evaluation() { activations = training, evaluation = 0; }
  int64_t shared() const { return parameters + optimizer + copies; }  // by all ranks of one process
  int64_t own() const {
    return std::max(in_turn ? std::max(in_passes, in_exchange()) : in_passes + communication, evaluation);
  }
  int64_t total() const { return shared() + own(); }
  // The bytes of all ranks of one process. `at_once` of them compute at the same time.
  int64_t in_process(int64_t ranks, int64_t at_once) const;
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
// `pass`: measured; null: estimated from the recipe.
RankMemory rank_memory(const Recipe& recipe, const train::Network& network, const Shares& shares,
                       const ExchangeMemory& exchange, const PassMemory* pass = nullptr);

}  // namespace lmx
