// A batcher that uses only lmx's public headers: every sequence repeats one token.
#include "lmx/batcher.h"
#include "lmx/plugin.h"

namespace {

struct HelloConfig {
  int64_t length = 4;
  int64_t token = 0;
  void fields(lmx::Fields& f) {
    f.field("length", length, "tokens of a sequence", lmx::kPositive);
    f.field("token", token, "the token that is repeated", lmx::kNonNegative);
  }
};

class Hello : public lmx::Batcher {
 public:
  Hello(HelloConfig config, lmx::BatcherEnv env) : config_(config), env_(std::move(env)) {}
  lmx::Batch batch(int64_t, int64_t first, int64_t count) const override {
    lmx::Batch batch;
    batch.inputs = constant(count);
    batch.targets = constant(count);
    for (int64_t i = 0; i < count; ++i) batch.slots.push_back(first + i);
    batch.fresh.assign(static_cast<size_t>(count), 1);
    return batch;
  }
  int64_t steps_per_epoch() const override { return 1; }
  int64_t sequence_length() const override { return config_.length; }
  bool carries_state() const override { return false; }

 private:
  lmx::Tensor constant(int64_t count) const {
    const std::vector<int32_t> tokens(static_cast<size_t>(count * config_.length), static_cast<int32_t>(config_.token));
    return lmx::Tensor::from<int32_t>(env_.allocator, {count, config_.length}, tokens);
  }

  HelloConfig config_;
  lmx::BatcherEnv env_;
};

}  // namespace

LMX_PLUGIN(batcher, hello, HelloConfig, Hello)
