// Truncated backpropagation through time. The tokens are cut into as many equal parts as the global batch has
// sequences; slot s reads part s in order, `sequence_length` tokens a step, its state carried from step to step and
// zero at the start of every epoch. The order is the same in every epoch. What does not fill a last window of all slots
// is dropped: fewer than global_batch x (sequence_length + 1) tokens.
#include "lmx/batcher.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct TbpttConfig {
  int64_t sequence_length = 35;
  void fields(Fields& f) { f.field("sequence_length", sequence_length, "tokens of a sequence in one step", kPositive); }
};

class Tbptt : public Batcher {
 public:
  Tbptt(const TbpttConfig& config, const std::string& path, const BatcherEnv& env)
      : env_(env), length_(config.sequence_length), part_((env.tokens.size() - 1) / env.global_batch) {
    if (part_ >= length_ && env.tokens.size() > 1) return;
    const int64_t tokens = env.tokens.size();
    throw UserError(length_ >= tokens
                        ? str("[tbptt] ", path, ".sequence_length ", length_, " is longer than the ", env.split,
                              " split: it holds ", tokens, " tokens, and a sequence takes ", length_ + 1)
                        : str("[tbptt] the ", env.split, " split is shorter than one batch: ", env.global_batch,
                              " sequences (batch.global) of ", length_, " (", path, ".sequence_length) take ",
                              env.global_batch * length_ + 1, " tokens, it holds ", tokens));
  }

  Batch batch(int64_t step, int64_t first, int64_t count) const override {
    const int64_t window = step % steps_per_epoch();
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
  int64_t steps_per_epoch() const override { return part_ / length_; }
  int64_t sequence_length() const override { return length_; }
  bool carries_state() const override { return true; }

 private:
  BatcherEnv env_;
  int64_t length_;
  int64_t part_;  // inputs of a slot; the target of its last one is the next slot's first token
};

std::unique_ptr<Batcher> make_tbptt(const Node& config, const std::string& path, const BatcherEnv& env) {
  return std::make_unique<Tbptt>(read_config<TbpttConfig>(config, path), path, env);
}

}  // namespace

LMX_PLUGIN(batcher, tbptt, TbpttConfig, make_tbptt)
