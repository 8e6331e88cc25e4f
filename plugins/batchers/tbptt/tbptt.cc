// Truncated backpropagation through time: slot s reads its text in order, `sequence_length` tokens in each step. Its
// state is carried from step to step.
#include <algorithm>
#include <array>
#include <iomanip>
#include <mutex>
#include <sstream>

#include "lmx/batcher.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct TbpttConfig {
  int64_t sequence_length = 35, shards = 0;
  bool reshuffle = false;
  void fields(Fields& f) {
    f.field("sequence_length", sequence_length, "tokens of a sequence in one step", {1, 1 << 24});
    f.field("shards", shards,
            "strings (lines, reviews) are drawn without replacement and joined to this number of shards, but at least "
            "batch.global; states are zero at the start of a shard (Puri 2018: 1000). 0: batch.global parts of the "
            "text in its own order",
            kNonNegative);
    f.field("reshuffle", reshuffle, "with shards: draw the strings again in every epoch");
  }
};

// The tokens are divided into as many equal parts as the global batch has sequences. States are zero at the start of
// every epoch, and the order is the same in every epoch. Tokens that do not fill a last window of all slots are
// dropped: fewer than global_batch x (sequence_length + 1).
class Parts : public Batcher {
 public:
  Parts(const TbpttConfig& config, const std::string& path, const BatcherEnv& env)
      : env_(env),
        length_(config.sequence_length),
        steps_(window_steps(env, "tbptt", path, length_)),
        part_((env.tokens.size() - 1) / env.global_batch) {}

  Batch batch(int64_t step, int64_t first, int64_t count) const override {
    const int64_t window = step % steps_;
    std::vector<int64_t> starts, slots;
    for (int64_t slot = first; slot < first + count; ++slot) {
      starts.push_back(slot * part_ + window * length_);
      slots.push_back(slot);
    }
    Batch batch = make_batch(env_.tokens, starts, length_, env_.allocator);
    batch.slots = std::move(slots);
    batch.fresh.assign(starts.size(), window == 0);
    return batch;
  }
  int64_t steps_per_epoch() const override { return steps_; }
  int64_t sequence_length() const override { return length_; }
  bool carries_state() const override { return true; }

 private:
  BatcherEnv env_;
  int64_t length_, steps_;
  int64_t part_;  // inputs of a slot; the target of its last input is the first token of the next slot
};

// The shards of all epochs form an endless queue. Slot j reads shard j to its end, then the shard that is B later, and
// so on, so no shard is skipped for any B. Every shard has as many windows as fit into the shortest one, so that the
// position of a slot is a formula; the tokens after these windows are dropped.
class Shards : public Batcher {
 public:
  Shards(const TbpttConfig& config, const std::string& path, const BatcherEnv& env)
      : env_(env),
        length_(config.sequence_length),
        reshuffle_(config.reshuffle),
        count_(std::max(config.shards, env.global_batch)),
        first_(drawn(0)) {
    windows_ = (least_length() - 1) / length_;
    if (windows_ > 0) return;
    throw UserError(str("[tbptt] a shard is shorter than a sequence: of the ", env.split, " split's ",
                        env.tokens.size(), " tokens in ", count_, " shards (", path, ".shards ", config.shards,
                        ", batch.global ", env.global_batch, ") the shortest ",
                        reshuffle_ ? "of any epoch may have " : "has ", least_length(), ", and ", path,
                        ".sequence_length ", length_, " takes ", length_ + 1));
  }

  Batch batch(int64_t step, int64_t first, int64_t count) const override {
    const int64_t round = step / windows_, window = step % windows_;
    Batch batch;
    batch.inputs = Tensor::empty(env_.allocator, {count, length_}, DType::i32);
    batch.targets = Tensor::empty(env_.allocator, {count, length_}, DType::i32);
    std::vector<int32_t> tokens(static_cast<size_t>(length_ + 1));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t slot = first + i, place = round * env_.global_batch + slot;
      read(place / count_, place % count_, window, tokens);
      std::copy_n(tokens.begin(), length_, batch.inputs.data<int32_t>() + i * length_);
      std::copy_n(tokens.begin() + 1, length_, batch.targets.data<int32_t>() + i * length_);
      batch.slots.push_back(slot);
      batch.fresh.push_back(window == 0);
    }
    return batch;
  }
  int64_t steps_per_epoch() const override { return std::max<int64_t>(1, count_ * windows_ / env_.global_batch); }
  int64_t sequence_length() const override { return length_; }
  bool carries_state() const override { return true; }
  std::vector<std::string> describe() const override {
    const double read = static_cast<double>(count_ * windows_ * length_) / static_cast<double>(env_.tokens.size());
    std::ostringstream line;
    line << "tbptt: " << count_ << " shards of " << env_.strings.size() << " strings, " << windows_ << " windows of "
         << length_ << " each; " << std::fixed << std::setprecision(2) << 100 * read << " % of the tokens are read";
    return {line.str()};
  }

 private:
  std::shared_ptr<const StringShards> drawn(int64_t epoch) const {
    const RandomKey key = env_.key.fold("shards").fold(reshuffle_ ? static_cast<uint64_t>(epoch) : 0);
    return std::make_shared<StringShards>(env_.tokens, env_.strings, count_, key, env_.split);
  }

  // The shards of two epochs are cached: the slots of a step may be in both.
  std::shared_ptr<const StringShards> of_epoch(int64_t epoch) const {
    if (epoch == 0 || !reshuffle_) return first_;
    const std::lock_guard lock(mutex_);
    auto& kept = kept_[static_cast<size_t>(epoch % 2)];
    if (!kept.second || kept.first != epoch) kept = {epoch, drawn(epoch)};
    return kept.second;
  }

  void read(int64_t epoch, int64_t shard, int64_t window, std::vector<int32_t>& tokens) const {
    const std::shared_ptr<const StringShards> shards = of_epoch(epoch);
    const auto n = static_cast<int64_t>(tokens.size());
    if (window * length_ + n > shards->length(shard))
      throw UserError(str("[tbptt] epoch ", epoch + 1, " drew a shard of ", shards->length(shard), " tokens, shorter ",
                          "than the ", windows_ * length_ + 1, " that are read of each; use fewer shards"));
    shards->copy(shard, window * length_, n, tokens.data());
  }

  // The shortest possible shard of any epoch: its boundaries are at most half a string from equal divisions.
  int64_t least_length() const {
    if (!reshuffle_) return first_->shortest();
    int64_t longest = 0;
    for (int64_t i = 0; i < env_.strings.size(); ++i) longest = std::max(longest, env_.strings.at(i).length);
    return std::max<int64_t>(0, std::min(first_->shortest(), env_.tokens.size() / count_ - longest));
  }

  BatcherEnv env_;
  int64_t length_;
  bool reshuffle_;
  int64_t count_;
  std::shared_ptr<const StringShards> first_;
  int64_t windows_ = 0;  // number of windows in each shard
  mutable std::mutex mutex_;
  mutable std::array<std::pair<int64_t, std::shared_ptr<const StringShards>>, 2> kept_;
};

std::unique_ptr<Batcher> make_tbptt(const Node& config, const std::string& path, const BatcherEnv& env) {
  const auto c = read_config<TbpttConfig>(config, path);
  if (c.shards == 0) return std::make_unique<Parts>(c, path, env);
  if (env.strings.size() == 0)
    throw UserError(str("[tbptt] ", path, ".shards ", c.shards, " joins strings, and this data keeps none; use ",
                        "data.name text with data.tokens chars or bytes, or shards 0"));
  return std::make_unique<Shards>(c, path, env);
}

}  // namespace

LMX_PLUGIN(batcher, tbptt, TbpttConfig, make_tbptt)
