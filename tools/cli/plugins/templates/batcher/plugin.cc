// The text in order, to start from: each sequence of the global batch reads its own part of the split from begin to end.
// See lmx/batcher.h for what each function promises: above all, a batch is a pure function of seed and step.
#include <algorithm>

#include "lmx/batcher.h"
#include "lmx/plugin.h"

namespace {

// The keys of `batcher: {name: @name@, ...}` in a recipe. This list reads, checks, documents and prints them.
struct @Name@Config {
  int64_t sequence_length = 20;
  void fields(lmx::Fields& f) { f.field("sequence_length", sequence_length, "tokens of a sequence", {1, 1 << 24}); }
};

class @Name@ : public lmx::Batcher {
 public:
  @Name@(const @Name@Config& config, const std::string& path, const lmx::BatcherEnv& env)
      : env_(env), length_(config.sequence_length) {
    const int64_t inputs = std::max<int64_t>(env.tokens.size() - 1, 0);  // the last token is a target only
    steps_ = inputs / env.global_batch / length_;
    if (steps_ < 1)
      throw lmx::UserError(lmx::str("[@name@] ", path, ": ", env.global_batch, " sequences of ", length_, " tokens need ",
                                    env.global_batch * length_ + 1, ", the ", env.split, " split has ", env.tokens.size()));
  }

  // Ranks ask for parts of a step: [first, first + count) must not depend on how it is cut.
  lmx::Batch batch(int64_t step, int64_t first, int64_t count) const override {
    const int64_t window = step % steps_;
    std::vector<int64_t> starts;
    for (int64_t slot = first; slot < first + count; ++slot) starts.push_back((slot * steps_ + window) * length_);
    lmx::Batch batch = lmx::make_batch(env_.tokens, starts, length_, env_.allocator);
    for (int64_t i = 0; i < count; ++i) batch.slots[static_cast<size_t>(i)] = first + i;
    batch.fresh.assign(static_cast<size_t>(count), window == 0);  // an epoch begins: no state is carried into it
    return batch;
  }

  int64_t steps_per_epoch() const override { return steps_; }
  int64_t sequence_length() const override { return length_; }
  bool carries_state() const override { return true; }

 private:
  lmx::BatcherEnv env_;
  int64_t length_, steps_ = 0;
};

}  // namespace

LMX_PLUGIN(batcher, @name@, @Name@Config, @Name@)
