// Two batchers whose fields have names that no batcher of lmx uses: windows of `span` tokens, and sub-batches of
// sentences with at most `room` target tokens. TEST_PAIRS chooses the second.
#include "lmx/error.h"
#include "lmx/pair_batches.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

#if TEST_PAIRS

struct BundlesConfig {
  int64_t room = 64;
  void fields(Fields& f) { f.field("room", room, "the most target tokens of a sub-batch", kPositive); }
};

std::unique_ptr<Batcher> make(const Node& config, const std::string& path, const BatcherEnv& env) {
  const auto c = read_config<BundlesConfig>(config, path);
  PairLimit limit;
  limit.max_tokens = c.room;
  int64_t skipped = 0;
  const std::vector<int64_t> order = pairs_by_length(env, limit, "bundles", path, skipped);
  return std::make_unique<PairBatcher>(env, cut_by_tokens(env.pairs, order, c.room),
                                       PairBatcher::Options{.max_tokens = c.room});
}

#else

struct SpansConfig {
  int64_t span = 4;
  void fields(Fields& f) { f.field("span", span, "tokens of a window", kPositive); }
};

class Spans final : public Batcher {
 public:
  Spans(int64_t span, const BatcherEnv& env) : span_(span), env_(env) {
    if (env_.tokens.size() <= span_)
      throw UserError(str("[spans] ", env_.tokens.size(), " tokens for spans of ", span_));
  }
  Batch batch(int64_t step, int64_t first, int64_t count) const override {
    std::vector<int64_t> starts;
    for (int64_t i = first; i < first + count; ++i)
      starts.push_back((step * env_.global_batch + i) * span_ % (env_.tokens.size() - span_));
    Batch b = make_batch(env_.tokens, starts, span_, env_.allocator);
    for (int64_t i = 0; i < count; ++i) b.slots[static_cast<size_t>(i)] = first + i;
    b.fresh.assign(static_cast<size_t>(count), 1);
    return b;
  }
  int64_t steps_per_epoch() const override { return env_.tokens.size() / span_ / env_.global_batch; }
  int64_t sequence_length() const override { return span_; }
  bool carries_state() const override { return false; }

 private:
  int64_t span_;
  BatcherEnv env_;
};

std::unique_ptr<Batcher> make(const Node& config, const std::string& path, const BatcherEnv& env) {
  return std::make_unique<Spans>(read_config<SpansConfig>(config, path).span, env);
}

#endif

}  // namespace

#if TEST_PAIRS
LMX_PLUGIN(batcher, bundles, BundlesConfig, make)
#else
LMX_PLUGIN(batcher, spans, SpansConfig, make)
#endif
