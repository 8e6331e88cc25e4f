// The text in windows: window w has the inputs w T to w T + T - 1 and the tokens after them as targets, T being
// `sequence_length`. A window may begin inside a line or document and contain several. They are joined, as in GPT-2, or
// read as separate documents. Every sequence starts with a zero state. Fewer than one batch of windows remains unused
// at the end of an epoch.
#include "lmx/batcher.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct PackedWindowsConfig {
  int64_t sequence_length = 1024;
  bool shuffle = true;
  std::string documents = "join";
  void fields(Fields& f) {
    f.field("sequence_length", sequence_length, "tokens of a sequence", {1, 1 << 24});
    f.field("shuffle", shuffle, "an epoch reads the windows in a random order; false: in the order of the text");
    f.choice("documents", documents, {"join", "separate"},
             "join: attention and positions cross the documents of a window; separate: they do not. A document begins "
             "with the token for the end of text");
  }
};

class PackedWindows : public Batcher {
 public:
  PackedWindows(const PackedWindowsConfig& config, const std::string& path, const BatcherEnv& env)
      : env_(env),
        length_(config.sequence_length),
        shuffle_(config.shuffle),
        separate_(config.documents == "separate"),
        steps_(window_steps(env, "packed_windows", path, length_)) {}

  Batch batch(int64_t step, int64_t first, int64_t count) const override {
    std::vector<int64_t> starts, slots;
    for (int64_t slot = first; slot < first + count; ++slot) {
      starts.push_back(window(step, slot) * length_);
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
  bool separates_documents() const override { return separate_; }

 private:
  int64_t window(int64_t step, int64_t slot) const {
    const int64_t place = step % steps_ * env_.global_batch + slot;
    if (!shuffle_) return place;
    const auto windows = static_cast<uint64_t>((env_.tokens.size() - 1) / length_);
    const RandomKey key = env_.key.fold("order").fold(static_cast<uint64_t>(step / steps_));
    return static_cast<int64_t>(permute(key, static_cast<uint64_t>(place), windows));
  }

  BatcherEnv env_;
  int64_t length_;
  bool shuffle_, separate_;
  int64_t steps_;
};

}  // namespace

LMX_PLUGIN(batcher, packed_windows, PackedWindowsConfig, PackedWindows)
