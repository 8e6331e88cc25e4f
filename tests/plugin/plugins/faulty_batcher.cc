// A batcher that breaks one of its promises: TEST_FAULT says how.
#include <csignal>
#include <cstdlib>
#include <map>

#include "lmx/batcher.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace {

struct Config {
  int64_t sequence_length = 4;
  void fields(lmx::Fields& f) { f.field("sequence_length", sequence_length, "tokens of a sequence", lmx::kPositive); }
};

class Faulty : public lmx::Batcher {
 public:
  Faulty(Config config, const lmx::BatcherEnv& env) : length_(config.sequence_length), env_(env) {
    if (env.tokens.size() < 1000 && TEST_FAULT != 10) throw lmx::UserError("the text is too short");
  }
  lmx::Batch batch(int64_t step, int64_t first, int64_t count) const override {
    if (TEST_FAULT == 1) raise(SIGSEGV);
    if (TEST_FAULT == 4) std::_Exit(0);
    if (TEST_FAULT == 7) static_cast<void>(std::map<int, int>().at(7));
    const int64_t shift = TEST_FAULT == 2   ? ++calls_  // no pure function
                          : TEST_FAULT == 8 ? 0         // one batch for all steps
                          : TEST_FAULT == 9 ? step % 10 * length_
                                            : step;
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < count; ++i) starts.push_back((TEST_FAULT == 3 ? i : first + i) * 100 + shift);  // 3: slices
    if (TEST_FAULT == 5)  // draws, but not with env.key
      for (int64_t& start : starts)
        start = static_cast<int64_t>(lmx::RandomKey(1).below(static_cast<uint64_t>(start), 1000));
    lmx::Batch b = lmx::make_batch(env_.tokens, starts, length_, env_.allocator);
    for (int64_t i = 0; i < count; ++i) b.slots[static_cast<size_t>(i)] = first + i;
    b.fresh.assign(static_cast<size_t>(count), TEST_FAULT != 9 || step == 0);  // 9: not in the next epoch
    if (TEST_FAULT == 11) ++b.slots.back();
    if (TEST_FAULT == 12) b.fresh.pop_back();
    if (TEST_FAULT == 13) b.inputs = b.targets = b.inputs.reshape({b.tokens()});
    if (TEST_FAULT == 14) b.targets = b.targets.slice(0, count - 1);
    return b;
  }
  int64_t steps_per_epoch() const override { return 10; }
  int64_t sequence_length() const override { return TEST_FAULT == 15 ? 0 : length_; }
  bool carries_state() const override { return TEST_FAULT == 6 || TEST_FAULT == 9; }  // though every sequence is fresh

 private:
  int64_t length_;
  lmx::BatcherEnv env_;
  mutable int64_t calls_ = 0;
};

}  // namespace

LMX_PLUGIN(batcher, test_faulty, Config, Faulty)
