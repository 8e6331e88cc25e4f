// A rate that falls with each validation that brings no new lowest perplexity. Its fields have names that no schedule
// of lmx uses. The field `fault` breaks one promise.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/schedule.h"

namespace {

using namespace lmx;

struct Config {
  double share = 0.7;
  int64_t ramp = 3;
  int64_t fault = 0;
  void fields(Fields& f) {
    f.field("share", share, "the rate is multiplied by it", {0, 1, true});
    f.field("ramp", ramp, "updates over which the rate rises", kPositive);
    f.field("fault", fault, "the promise that is broken; 0: none", kNonNegative);
  }
};

class TestSchedule final : public Schedule {
 public:
  TestSchedule(const Config& c, double base) : c_(c), base_(base) {}
  double rate(const ScheduleState& s) const override {
    if (c_.fault == 7) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (c_.fault == 5) throw std::out_of_range("a schedule without its map");
    if (c_.fault == 6 && s.update == 2) return std::numeric_limits<double>::quiet_NaN();
    const double risen = std::min(1.0, static_cast<double>(s.update + 1) / static_cast<double>(c_.ramp));
    double rate = base_ * risen * std::pow(c_.share, cuts_);
    if (c_.fault == 2 && s.update > s.total_steps) rate = -rate;
    if (c_.fault == 3 && s.update + 7 == last_) rate *= 1.001;
    last_ = s.update;
    return rate;
  }
  void validated(double perplexity) override {
    if (perplexity < best_)
      best_ = perplexity;
    else
      ++cuts_;
  }
  std::vector<double> state() const override {
    if (c_.fault == 1) return {cuts_};
    return {cuts_, best_};
  }
  void load(const std::vector<double>& state) override {
    if (c_.fault != 4 && state.size() != (c_.fault == 1 ? 1u : 2u))
      throw UserError(str("[test_schedule] a state of 2 numbers, got ", state.size()));
    cuts_ = state[0];
    if (state.size() > 1) best_ = state[1];
  }

 private:
  Config c_;
  double base_, cuts_ = 0, best_ = std::numeric_limits<double>::infinity();
  mutable int64_t last_ = 0;  // fault 3: the update that was asked for before
};

}  // namespace

LMX_PLUGIN(schedule, test_schedule, Config, TestSchedule)
