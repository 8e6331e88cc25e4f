// Batchers: a batcher chooses the tokens of each step, as a pure function of seed, epoch and step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/api.h"
#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/random.h"
#include "lmx/tensor.h"

namespace lmx {

// B sequences of a step's global batch. The sequences of a sub-batch may differ in length; they are stored one after the
// other, without padding.
struct LMX_API Batch {
  Tensor inputs;                 // i32 (B, T), or (N) with `lengths`
  Tensor targets;                // i32, shaped as inputs: the token after each input
  std::vector<int64_t> slots;    // (B) number of the sequence in the global batch: its state and noise belong to it
  std::vector<uint8_t> fresh;    // (B) 1: the sequence starts with a zero state
  std::vector<int64_t> lengths;  // (B) inputs of each sequence, N in total; empty if all have T
  Tensor source;                 // i32 (M): the sentences to translate, ended by </s>; undefined for language models
  std::vector<int64_t> source_lengths;  // (B), M in total
  // (D) inputs of each document of a batch (B, T), B*T in total: no document extends over two sequences, and a model's
  // attention and positions stay inside a document. Empty: each sequence is one document.
  std::vector<int64_t> documents = {};
  int64_t sequences() const { return lengths.empty() ? inputs.dim(0) : static_cast<int64_t>(lengths.size()); }
  int64_t tokens() const { return inputs.numel(); }
  // `lengths`, also if all are equal.
  std::vector<int64_t> sequence_lengths() const;
  // `documents`, or sequence_lengths() if that is empty.
  std::vector<int64_t> document_lengths() const { return documents.empty() ? sequence_lengths() : documents; }
  // Checks this result of batch(step, first, count) of a batcher whose sequence_length() is `longest`, except its ids.
  // Returns the end of the sentence "the batcher gives ...", or "" if nothing is wrong.
  std::string fault(int64_t first, int64_t count, int64_t longest) const;
};

struct BatcherEnv {
  TokenArray tokens;
  int64_t global_batch = 1;  // items of a step, over all ranks
  RandomKey key;
  std::shared_ptr<Allocator> allocator;
  std::string split = "train";
  PairArray pairs = {};              // parallel text; empty for language models
  std::vector<PairPart> parts = {};  // parts of the pairs, if texts are mixed by a ratio
  // `cost`: seconds of a forward and backward pass over `sentences` pairs whose longest sides have these lengths; a
  // call may run a measurement. `macs`: the multiply-adds of that pass. Both are empty if the model cannot be run.
  using Cost = std::function<double(int64_t sentences, int64_t source, int64_t target)>;
  Cost cost = {}, macs = {};
  TextStrings strings = {};  // strings of `tokens`, if the text consists of strings (chars, bytes)
};

struct StepSize {
  int64_t tokens = 0, sequences = 0;
};

enum class Items : uint8_t { sequences, sub_batches };

// What the items of a global batch are, for estimates and checks.
struct BatchPlan {
  Items items = Items::sequences;
  int64_t item_tokens = 1;     // the most target tokens of an item
  bool measures_cost = false;  // the items depend on BatcherEnv::cost, and therefore on the speed of this machine
};

// An item of the global batch is a sequence of T tokens. If sentences differ in length, an item is a sub-batch of them:
// one forward pass of a rank. Immutable after construction and thread-safe. A checkpoint needs the step only.
class LMX_API Batcher {
 public:
  using Factory = std::unique_ptr<Batcher> (*)(const Node& config, const std::string& path, const BatcherEnv& env);

  virtual ~Batcher();
  // Items [first, first + count) of the global batch of `step` (0-based and unlimited: epochs follow each other). In
  // the last step of an epoch of sub-batches, some items may be empty. REQUIRES: 0 <= first, first + count <= global
  // batch; count is 1 for sub-batches.
  virtual Batch batch(int64_t step, int64_t first, int64_t count) const = 0;
  virtual int64_t steps_per_epoch() const = 0;
  // T, the largest number of tokens of a sequence in any step. It is also the length of an evaluation window. 0: items
  // are sub-batches.
  virtual int64_t sequence_length() const = 0;
  // Default: sequences of sequence_length() tokens, or sub-batches if that is 0. A batcher of sub-batches overrides it
  // to state how many tokens they have.
  virtual BatchPlan plan() const;
  virtual bool carries_state() const = 0;  // false: every sequence starts with a zero state
  // True: each sequence of batch() is cut before every token for the end of text, in training and in evaluations, and
  // the model reads the parts as documents (Batch::documents). Default: false.
  virtual bool separates_documents() const;
  // Targets and sequences of the global batch of `step`; the gradient of the step is divided by one of them. The
  // default {0, 0} means that every sequence of every step has sequence_length() tokens. Must be overridden if some
  // steps have shorter sequences (a curriculum) or if items are sub-batches. A run ends with an error if batch()
  // contradicts it.
  virtual StepSize step_size(int64_t step) const;
  // Lines that are printed when a run starts; none by default.
  virtual std::vector<std::string> describe() const;
};

// For each start, the sequence tokens[start .. start + length]: the inputs lack its last token, the targets its first.
// Slots are 0, 1, ...; `fresh` is 0 for every sequence, and the caller sets it.
// REQUIRES: 0 <= start and start + length < tokens.size().
LMX_API Batch make_batch(const TokenArray& tokens, std::span<const int64_t> starts, int64_t length,
                         const std::shared_ptr<Allocator>& allocator);

// Sets the documents of a batch (B, T): each begins at the start of a sequence, or at an input that is `separator`.
LMX_API void separate_documents(Batch& batch, int32_t separator);

// An id of each row of sequences of these lengths, made of its slot and its position in the sequence: for dropout that
// does not depend on ranks and micro-batches.
LMX_API std::vector<uint64_t> row_ids(std::span<const int64_t> slots, std::span<const int64_t> lengths);

// Steps of an epoch that reads each token of a split at most once, in sequences of `length` tokens. UserError: the
// split is shorter than one batch. The message begins with the plugin's name; `path` is the place of the batcher's
// config.
LMX_API int64_t window_steps(const BatcherEnv& env, const std::string& plugin, const std::string& path, int64_t length);

// Joins the strings of a text, sampled without replacement, into shards of about equal length (Puri 2018). `key`
// decides the order of the strings. Each shard begins at the string boundary that is nearest to an equal division.
// Memory: 8 bytes for each 64 strings.
class LMX_API StringShards {
 public:
  // UserError: fewer strings than shards. `split` is for messages.
  StringShards(TokenArray tokens, TextStrings strings, int64_t shards, RandomKey key,
               const std::string& split = "train");
  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }
  int64_t length(int64_t shard) const { return ends(shard) - begins_[static_cast<size_t>(shard)]; }  // tokens
  int64_t shortest() const;
  // Copies tokens [offset, offset + count) of a shard. REQUIRES: the range is inside the shard.
  void copy(int64_t shard, int64_t offset, int64_t count, int32_t* to) const;

 private:
  int64_t ends(int64_t shard) const { return begins_[static_cast<size_t>(shard) + 1]; }
  TextStrings::Range drawn(int64_t rank) const;
  TokenArray tokens_;
  TextStrings strings_;
  RandomKey key_;
  std::vector<int64_t> begins_;  // (shards + 1) offsets in the tokens of all strings in sampled order
  std::vector<int64_t> marks_;   // such an offset for every 64th sampled string
};

// An evaluation pass. Every token of a split except the first is a target exactly once. The tokens are divided into as
// many contiguous slots as an evaluation batch has sequences. Slot s reads its part in order, in windows of `length`
// tokens; its last window is shorter if `length` does not divide the part. Tokens that remain after the division into
// equal slots form one more sequence at the end, which continues the last slot. State is carried; only the first window
// of a slot is fresh.
class LMX_API EvalPlan {
 public:
  // UserError: fewer than two tokens. With fewer tokens than `sequences`, fewer slots are used.
  EvalPlan(TokenArray tokens, int64_t sequences, int64_t length, const std::string& split = "valid");
  int64_t batches() const { return windows_ + extra_; }
  int64_t slots() const { return slots_; }
  int64_t targets() const { return tokens_.size() - 1; }  // over all batches
  // The sequences of batch `index` with slots in [first, first + count): a rank's part. It may be empty: (0, T).
  Batch batch(int64_t index, int64_t first, int64_t count, const std::shared_ptr<Allocator>& allocator) const;
  Batch batch(int64_t index, const std::shared_ptr<Allocator>& allocator) const {
    return batch(index, 0, slots_, allocator);
  }

 private:
  TokenArray tokens_;
  int64_t slots_ = 0, length_ = 0;
  int64_t part_ = 0;                 // inputs of a slot
  int64_t windows_ = 0, extra_ = 0;  // batches over all slots; batches of the remaining tokens
};

using BatcherFactory = Batcher::Factory;

}  // namespace lmx
