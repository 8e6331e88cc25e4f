// Windows whose length grows with the step, for tests of the trainer: a curriculum. With `claims` and `declares` it
// reports wrong sizes.
#include <algorithm>

#include "lmx/batcher.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct GrowingConfig {
  int64_t shortest = 8, longest = 8, every = 1, claims = 0;
  std::string declares = "sizes";
  void fields(Fields& f) {
    f.field("shortest", shortest, "tokens of a window in step 0", kPositive);
    f.field("longest", longest, "tokens of a window at most", kPositive);
    f.field("every", every, "steps until windows are a token longer", kPositive);
    f.field("claims", claims, "what sequence_length() says; 0: longest", kNonNegative);
    f.choice("declares", declares, {"sizes", "nothing"}, "whether step_size() says how long the windows are");
  }
};

class Growing final : public Batcher {
 public:
  Growing(GrowingConfig config, const BatcherEnv& env) : config_(std::move(config)), env_(env) {
    if (env_.tokens.size() <= config_.longest)
      throw UserError(str("[growing] ", env_.tokens.size(), " tokens for windows of ", config_.longest));
  }
  Batch batch(int64_t step, int64_t first, int64_t count) const override {
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < count; ++i)
      starts.push_back(37 * (step * env_.global_batch + first + i) % (env_.tokens.size() - config_.longest));
    Batch b = make_batch(env_.tokens, starts, length(step), env_.allocator);
    for (int64_t i = 0; i < count; ++i) b.slots[static_cast<size_t>(i)] = first + i;
    b.fresh.assign(static_cast<size_t>(count), 1);
    return b;
  }
  StepSize step_size(int64_t step) const override {
    if (config_.declares == "nothing") return {};
    return {env_.global_batch * length(step), env_.global_batch};
  }
  int64_t steps_per_epoch() const override { return 10; }
  int64_t sequence_length() const override { return config_.claims > 0 ? config_.claims : config_.longest; }
  bool carries_state() const override { return false; }

 private:
  int64_t length(int64_t step) const { return std::min(config_.longest, config_.shortest + step / config_.every); }
  GrowingConfig config_;
  BatcherEnv env_;
};

}  // namespace

LMX_PLUGIN(batcher, growing, GrowingConfig, Growing)
