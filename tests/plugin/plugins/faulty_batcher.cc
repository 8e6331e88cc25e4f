// A batcher that breaks one of its promises: the field `fault` says which one.
#include <csignal>
#include <cstdlib>
#include <map>

#include "lmx/batcher.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace {

struct Config {
  int64_t sequence_length = 4;
  int64_t fault = 0;
  void fields(lmx::Fields& f) {
    f.field("sequence_length", sequence_length, "tokens of a sequence", lmx::kPositive);
    f.field("fault", fault, "the promise that is broken; 0: none", lmx::kNonNegative);
  }
};

class Faulty : public lmx::Batcher {
 public:
  Faulty(const Config& config, const lmx::BatcherEnv& env) : c_(config), env_(env) {
    if (env.tokens.size() < 1000 && c_.fault != 10) throw lmx::UserError("the text is too short");
  }
  lmx::Batch batch(int64_t step, int64_t first, int64_t count) const override {
    if (c_.fault == 1) raise(SIGSEGV);
    if (c_.fault == 4) std::_Exit(0);
    if (c_.fault == 7) static_cast<void>(std::map<int, int>().at(7));
    const int64_t shift = c_.fault == 2   ? ++calls_  // no pure function
                          : c_.fault == 8 ? 0         // one batch for all steps
                          : c_.fault == 9 ? step % 10 * c_.sequence_length
                                          : step;
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < count; ++i) starts.push_back((c_.fault == 3 ? i : first + i) * 100 + shift);  // 3: slices
    if (c_.fault == 5)  // draws, but not with env.key
      for (int64_t& start : starts)
        start = static_cast<int64_t>(lmx::RandomKey(1).below(static_cast<uint64_t>(start), 1000));
    lmx::Batch b = lmx::make_batch(env_.tokens, starts, c_.sequence_length, env_.allocator);
    for (int64_t i = 0; i < count; ++i) b.slots[static_cast<size_t>(i)] = first + i;
    b.fresh.assign(static_cast<size_t>(count), c_.fault != 9 || step == 0);  // 9: not in the next epoch
    if (c_.fault == 11) ++b.slots.back();
    if (c_.fault == 12) b.fresh.pop_back();
    if (c_.fault == 13) b.inputs = b.targets = b.inputs.reshape({b.tokens()});
    if (c_.fault == 14) b.targets = b.targets.slice(0, count - 1);
    return b;
  }
  int64_t steps_per_epoch() const override { return 10; }
  int64_t sequence_length() const override { return c_.fault == 15 ? 0 : c_.sequence_length; }
  bool carries_state() const override { return c_.fault == 6 || c_.fault == 9; }  // though every sequence is fresh

 private:
  Config c_;
  lmx::BatcherEnv env_;
  mutable int64_t calls_ = 0;
};

}  // namespace

LMX_PLUGIN(batcher, test_batcher, Config, Faulty)
