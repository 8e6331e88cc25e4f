// Sub-batches of parallel text: how sentences are grouped, and the batcher that hands the groups out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/batcher.h"

namespace lmx {

// Groups of sentences, each one forward of a rank.
struct LMX_API PairGroups {
  std::vector<int64_t> pairs;           // numbers of sentences, group after group
  std::vector<int64_t> ends;            // (groups) one past each group's last
  std::vector<int64_t> part_ends = {};  // (parts) of a mix: one past each part's last group
  int64_t count() const { return static_cast<int64_t>(ends.size()); }
  std::span<const int64_t> group(int64_t g) const;
  void close() {
    ends.push_back(static_cast<int64_t>(pairs.size()));
  }  // what was added since is a group, perhaps empty
};

// Sizes of a group, with </s>; `longest` are what padding would bring every sentence to.
struct PairShape {
  int64_t sentences = 0;
  int64_t source = 0, target = 0;  // tokens
  int64_t longest_source = 0, longest_target = 0;
  int64_t padded() const { return sentences * (longest_source + longest_target); }
  int64_t tokens() const { return source + target; }
};
LMX_API PairShape shape_of(const PairArray& pairs, std::span<const int64_t> numbers);
LMX_API PairShape shape_of(const Batch& batch);

// These sentences as a batch: the decoder reads </s> and the target without its last token, as fairseq has it. Slots
// are the sentences' numbers and every sequence is fresh.
LMX_API Batch make_pair_batch(const PairArray& pairs, std::span<const int64_t> numbers,
                              const std::shared_ptr<Allocator>& allocator);

// The keys that every batcher of pairs has: a budget of target tokens, </s> counted, and what becomes of a sentence
// that fits no sub-batch.
struct LMX_API PairLimit {
  int64_t max_tokens = 3584;
  std::string too_long = "error";  // error, skip
  void fields(Fields& f, const char* max_tokens_help);
};
// Numbers of the sentences that fit, ascending by target and then source length so that neighbours need little padding,
// equal ones in an order drawn by `key`. UserError: a sentence is too long under `error`; no sentence fits; no parallel
// text. `plugin` and `path` say whose limit it is: token_budget, batcher. `skipped`: how many were left out.
LMX_API std::vector<int64_t> pairs_by_length(const BatcherEnv& env, const PairLimit& limit, const std::string& plugin,
                                             const std::string& path, int64_t& skipped);

// Runs of `order` that hold at most `max_tokens` target tokens, padding not counted.
LMX_API PairGroups cut_by_tokens(const PairArray& pairs, std::span<const int64_t> order, int64_t max_tokens);
// What `cost` says of a group: of as many sentences of its mean lengths, since nothing is padded, linear between whole
// tokens. REQUIRES: a sentence at least.
LMX_API double cost_of(const PairShape& shape, const BatcherEnv::Cost& cost);
// Runs of `order` as long as `cost` estimates them at no more than `most`; a sentence that alone costs more is a group.
// Runs of `max_tokens` target tokens are where the search for each end begins, so that `cost` is asked about runs near
// `most` alone.
LMX_API PairGroups cut_by_cost(const PairArray& pairs, std::span<const int64_t> order, const BatcherEnv::Cost& cost,
                               double most, int64_t max_tokens);

// cut(pairs in their order) of each part of a mix by itself, so that a group holds pairs of one part; of all pairs
// where nothing is mixed. UserError: no sentence of a part fits.
using CutPairs = std::function<PairGroups(std::span<const int64_t> order)>;
LMX_API PairGroups cut_parts(const BatcherEnv& env, std::span<const int64_t> order, const CutPairs& cut);

// Hands groups out as items, every group once an epoch, in an order drawn anew each epoch. Bundles of `bundle` groups
// stay neighbours. Of a mix, an epoch has of each part as many bundles as hold its `draws` on the average: all of them,
// each once, of a part with draws = count.
class LMX_API PairBatcher : public Batcher {
 public:
  struct Options {
    int64_t max_tokens = 0;  // the budget of target tokens that the groups were made with
    bool measured = false;   // the groups depend on BatcherEnv::cost
    int64_t bundle = 1;
    int64_t skipped = 0;  // sentences that fit no group
  };
  // REQUIRES: groups.count() is a positive multiple of options.bundle.
  PairBatcher(const BatcherEnv& env, PairGroups groups, const Options& options);
  Batch batch(int64_t step, int64_t first, int64_t count) const override;
  int64_t steps_per_epoch() const override;
  int64_t sequence_length() const override { return 0; }
  BatchPlan plan() const override { return {Items::sub_batches, options_.max_tokens, options_.measured}; }
  bool carries_state() const override { return false; }
  StepSize step_size(int64_t step) const override;
  std::vector<std::string> describe() const override;
  const PairGroups& groups() const { return groups_; }
  // The group that is item `item` of `step`; -1 for none.
  int64_t group_of(int64_t step, int64_t item) const;

 private:
  BatcherEnv env_;
  PairGroups groups_;
  Options options_;
  // Bundles of one part: where they begin, how many there are, and how many an epoch has.
  struct Share {
    int64_t first = 0, bundles = 0, per_epoch = 0;
  };
  std::vector<Share> shares_;
  int64_t per_epoch_ = 0;  // groups of an epoch
  std::vector<Share> shares() const;
  int64_t length_of(int64_t g) const;
  std::vector<int32_t> tokens_;  // (groups) target tokens
};

}  // namespace lmx
