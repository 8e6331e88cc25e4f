// Sequences "drawn randomly from the entire training corpus" (Patwary et al. 2018). Every sequence starts with a zero
// state.
//
// Without replacement: an epoch divides the tokens into windows of `sequence_length`, beginning at a random offset, and
// uses them in the order of a keyed permutation, so no token is a target twice in an epoch. Fewer than one batch of
// windows remains unused. With replacement: every sequence starts at a uniformly random position.
#include <algorithm>

#include "lmx/batcher.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct RandomWindowsConfig {
  int64_t sequence_length = 20;
  bool replacement = false;
  void fields(Fields& f) {
    f.field("sequence_length", sequence_length, "tokens of a sequence", {1, 1 << 24});
    f.field("replacement", replacement,
            "draw each sequence's start uniformly, so that an epoch repeats and misses some tokens");
  }
};

class RandomWindows : public Batcher {
 public:
  RandomWindows(const RandomWindowsConfig& config, const std::string& path, const BatcherEnv& env)
      : env_(env),
        length_(config.sequence_length),
        replacement_(config.replacement),
        steps_(window_steps(env, "random_windows", path, config.sequence_length)) {}

  Batch batch(int64_t step, int64_t first, int64_t count) const override {
    std::vector<int64_t> starts, slots;
    for (int64_t slot = first; slot < first + count; ++slot) {
      starts.push_back(replacement_ ? drawn_start(step, slot) : window_start(step, slot));
      slots.push_back(slot);
    }
    Batch batch = make_batch(env_.tokens, starts, length_, env_.allocator);
    batch.slots = std::move(slots);
    batch.fresh.assign(starts.size(), 1);
    return batch;
  }
  int64_t steps_per_epoch() const override { return steps_; }
  int64_t sequence_length() const override { return length_; }
  bool carries_state() const override { return false; }

 private:
  int64_t drawn_start(int64_t step, int64_t slot) const {
    const auto index = static_cast<uint64_t>(step * env_.global_batch + slot);
    return static_cast<int64_t>(
        env_.key.fold("start").below(index, static_cast<uint64_t>(env_.tokens.size() - length_)));
  }
  int64_t window_start(int64_t step, int64_t slot) const {
    const auto epoch = static_cast<uint64_t>(step / steps_);
    const int64_t inputs = env_.tokens.size() - 1;
    // Small enough that the offset never costs a step of the epoch.
    const int64_t room = std::min(length_ - 1, inputs - steps_ * env_.global_batch * length_);
    const auto offset = static_cast<int64_t>(env_.key.fold("offset").below(epoch, static_cast<uint64_t>(room + 1)));
    const auto windows = static_cast<uint64_t>((inputs - offset) / length_);
    const auto index = static_cast<uint64_t>(step % steps_ * env_.global_batch + slot);
    return offset + static_cast<int64_t>(permute(env_.key.fold("order").fold(epoch), index, windows)) * length_;
  }

  BatcherEnv env_;
  int64_t length_;
  bool replacement_;
  int64_t steps_;
};

}  // namespace

LMX_PLUGIN(batcher, random_windows, RandomWindowsConfig, RandomWindows)
