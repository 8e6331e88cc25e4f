// Sub-batches of parallel text: groups of sentences, and the batcher that returns the groups.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/batcher.h"

namespace lmx {

// Groups of sentences. Each group is one forward pass of a rank.
struct LMX_API PairGroups {
  std::vector<int64_t> pairs;           // indices of sentences, group after group
  std::vector<int64_t> ends;            // (groups) one past the last sentence of each group
  std::vector<int64_t> part_ends = {};  // (parts), for a mix of texts: one past the last group of each part
  int64_t count() const { return static_cast<int64_t>(ends.size()); }
  std::span<const int64_t> group(int64_t g) const;
  void close() {
    ends.push_back(static_cast<int64_t>(pairs.size()));
  }  // the sentences added since the last close() form a group, which may be empty
};

// Sizes of a group, including </s>. Padding would extend every sentence to the `longest` sizes.
struct PairShape {
  int64_t sentences = 0;
  int64_t source = 0, target = 0;  // tokens
  int64_t longest_source = 0, longest_target = 0;
  int64_t padded() const { return sentences * (longest_source + longest_target); }
  int64_t tokens() const { return source + target; }
};
LMX_API PairShape shape_of(const PairArray& pairs, std::span<const int64_t> numbers);
LMX_API PairShape shape_of(const Batch& batch);

// These sentences as a batch. The decoder reads </s> and the target without its last token, as in fairseq. Slots are
// the indices of the sentences, and every sequence is fresh.
LMX_API Batch make_pair_batch(const PairArray& pairs, std::span<const int64_t> numbers,
                              const std::shared_ptr<Allocator>& allocator);

// The keys of every batcher of pairs: a budget of target tokens, counting </s>, and the treatment of a sentence that
// fits no sub-batch.
struct LMX_API PairLimit {
  int64_t max_tokens = 3584;
  std::string too_long = "error";  // error, skip
  void fields(Fields& f, const char* max_tokens_help);
};
// Indices of the sentences that fit, sorted so that neighbours need little padding: by target length, then by source
// length (ascending for even target lengths, descending for odd ones). `key` decides the order of equal pairs.
// UserError: a sentence is too long and too_long is `error`; no sentence fits; no parallel text. `plugin` and `path`
// name the owner of the limit in messages: token_budget, batcher. `skipped`: number of sentences that were left out.
LMX_API std::vector<int64_t> pairs_by_length(const BatcherEnv& env, const PairLimit& limit, const std::string& plugin,
                                             const std::string& path, int64_t& skipped);

// Divides `order` into runs of at most `max_tokens` target tokens, not counting padding.
LMX_API PairGroups cut_by_tokens(const PairArray& pairs, std::span<const int64_t> order, int64_t max_tokens);
// The estimate of `cost` for a group. Since nothing is padded, the group counts as the same number of sentences of its
// mean lengths; fractional lengths are interpolated linearly. REQUIRES: at least one sentence.
LMX_API double cost_of(const PairShape& shape, const BatcherEnv::Cost& cost);
// Divides `order` into the longest runs with an estimated cost of at most `most`; a sentence that alone costs more is a
// group. The search for each end begins at a run of `max_tokens` target tokens, so that `cost` is called only for runs
// near `most`.
LMX_API PairGroups cut_by_cost(const PairArray& pairs, std::span<const int64_t> order, const BatcherEnv::Cost& cost,
                               double most, int64_t max_tokens);

// Calls cut(pairs of one part, in order) for each part of a mix, so that a group contains pairs of one part only; if
// nothing is mixed, calls it once for all pairs. UserError: no sentence of a part fits.
using CutPairs = std::function<PairGroups(std::span<const int64_t> order)>;
LMX_API PairGroups cut_parts(const BatcherEnv& env, std::span<const int64_t> order, const CutPairs& cut);

// Returns groups as items: every group once in each epoch, in a random order that is new in each epoch. `bundle`
// consecutive groups stay together. If texts are mixed, an epoch contains as many bundles of each part as correspond to
// its `draws` on average: for a part with draws = count, all of them, each once.
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
  // The group that is item `item` of `step`; -1 if there is none.
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
