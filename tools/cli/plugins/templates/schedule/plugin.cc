// Three phases, to start from: the rate rises to its base, stays there, and falls to zero at the end of the run. With t
// the number of the update and N that of the run's steps,
//
//   base (t + 1) / rise          while t < rise
//   base                         while t < N - fall
//   base (N - t) / fall          then; 0 from N on
//
// See lmx/schedule.h for what each function promises: above all, a rate is a function of the update's number and of what
// state() returns.
#include "lmx/schedule.h"

#include <algorithm>

#include "lmx/plugin.h"

namespace {

// The keys of `schedule: {name: @name@, ...}` in a recipe. This list reads, checks, documents and prints them.
struct @Name@Config {
  int64_t rise = 100;
  int64_t fall = 1000;
  void fields(lmx::Fields& f) {
    f.field("rise", rise, "updates over which the rate rises to its base", lmx::kNonNegative);
    f.field("fall", fall, "updates at the end of the run over which the rate falls to zero", lmx::kNonNegative);
  }
};

class @Name@ : public lmx::Schedule {
 public:
  @Name@(const @Name@Config& config, double base) : c_(config), base_(base) {}

  double rate(const lmx::ScheduleState& s) const override {
    const auto part = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
    const double risen = s.update < c_.rise ? part(s.update + 1, c_.rise) : 1;
    const int64_t left = std::max<int64_t>(0, s.total_steps - s.update);
    return base_ * std::min(risen, left < c_.fall ? part(left, c_.fall) : 1);
  }

 private:
  @Name@Config c_;
  double base_;
};

}  // namespace

LMX_PLUGIN(schedule, @name@, @Name@Config, @Name@)
