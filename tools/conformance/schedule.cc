// Checks of schedules: rates are finite, and functions of the update and of the state that a checkpoint stores.
#include "lmx/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/conformance.h"

namespace lmx::app::conformance {
namespace {

constexpr double kBase = 0.3;
constexpr int64_t kScheduleSteps = 1000, kStepsOfEpoch = 90;

ScheduleState at_update(int64_t update) {
  return {update, update / kStepsOfEpoch, kScheduleSteps};
}

// Perplexities with falls, rises and values of a diverged model.
const std::vector<double> kPerplexities{120,
                                        90,
                                        95,
                                        97,
                                        80,
                                        81,
                                        std::numeric_limits<double>::quiet_NaN(),
                                        60.5,
                                        60.5,
                                        std::numeric_limits<double>::infinity(),
                                        300,
                                        40};

// The rates of some updates, within the run and after its end.
std::vector<double> rates_of(const Schedule& schedule) {
  std::vector<double> rates;
  for (int64_t update = 0; update <= 2 * kScheduleSteps; update += update < 20 ? 1 : 49)
    rates.push_back(schedule.rate(at_update(update)));
  return rates;
}

class ScheduleCheck {
 public:
  explicit ScheduleCheck(const Subject& s) : s_(s) {}

  void run(Report& report) {
    report.run("rates", [&] { return rates(); });
    report.run("purity", [&] { return purity(); });
    report.run("base", [&] { return base(); });
    report.run("state", [&] { return state(); });
    report.run("wrong state", [&] { return wrong_state(); });
  }
  std::unique_ptr<Schedule> make(double base = kBase) const {
    auto schedule = create<ScheduleFactory>(s_.plugin, s_.config, "schedule", base);
    if (!schedule) fail("the factory returns no schedule");
    return schedule;
  }

 private:
  static void require_rates(const Schedule& schedule, const std::string& when) {
    for (int64_t update = 0; update <= 2 * kScheduleSteps; ++update) {
      const double rate = schedule.rate(at_update(update));
      if (!std::isfinite(rate) || rate < 0)
        fail("the rate of update ", update, " of ", kScheduleSteps, when, " is ", rate,
             ", expected a finite number from 0");
    }
  }

  std::string rates() const {
    const auto schedule = make();
    require_rates(*schedule, "");
    for (const double perplexity : kPerplexities) {
      schedule->validated(perplexity);
      require_rates(*schedule, str(" after a validation with perplexity ", perplexity));
    }
    require_rates(*make(0), " with a base of 0");
    const ScheduleState last{9, 0, 1}, one{0, 0, 1};
    for (const ScheduleState& s : {one, last})
      if (const double rate = make()->rate(s); !std::isfinite(rate) || rate < 0)
        fail("in a run of one step the rate of update ", s.update, " is ", rate);
    double least = INFINITY, most = 0;
    for (const double rate : rates_of(*make())) {
      least = std::min(least, rate);
      most = std::max(most, rate);
    }
    return str("from ", least, " to ", most, " with a base of ", kBase);
  }

  // In another order, and by another object: the ranks of a job, and a run that is resumed.
  std::string purity() const {
    const auto own = make();
    const std::vector<double> rates = rates_of(*own);
    if (rates_of(*own) != rates) fail("a second call with the same update gives another rate");
    for (int64_t update = 2 * kScheduleSteps; update >= 0; update -= 7) {
      const double rate = own->rate(at_update(update));
      if (make()->rate(at_update(update)) != rate)
        fail("the rate of update ", update, " depends on the updates that were asked for before; a resumed run would ",
             "have other rates");
    }
    return "a rate depends on its update alone";
  }

  std::string base() const {
    if (rates_of(*make(kBase)) == rates_of(*make(2 * kBase)))
      return "the rates do not depend on the base: lr_rule and the optimizer's learning rate have no effect";
    return "another base gives other rates";
  }

  // Resumes after each validation: what validated() changes must be part of the state.
  std::string state() const {
    const auto whole = make();
    for (size_t done = 0; done < kPerplexities.size(); ++done) {
      whole->validated(kPerplexities[done]);
      const auto resumed = make();
      const std::vector<double> saved = whole->state();
      resumed->load(saved);
      if (resumed->state().size() != saved.size() || !equal(resumed->state(), saved))
        fail("load() does not restore what state() returns after validation ", done + 1);
      const auto original = make();
      for (size_t i = 0; i <= done; ++i) original->validated(kPerplexities[i]);
      for (size_t i = done + 1;; ++i) {
        if (rates_of(*resumed) != rates_of(*original))
          fail("a run that is resumed after validation ", done + 1, " has other rates after validation ", i,
               "; state() must return all that validated() changes");
        if (i == kPerplexities.size()) break;
        resumed->validated(kPerplexities[i]);
        original->validated(kPerplexities[i]);
      }
    }
    return whole->state().empty() ? "none to save; a resumed run has the same rates"
                                  : str(whole->state().size(), " numbers; a resumed run has the same rates");
  }
  // Equal in every bit, except that one NaN equals another.
  static bool equal(const std::vector<double>& a, const std::vector<double>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
    return true;
  }

  std::string wrong_state() const {
    std::vector<double> more = make()->state();
    more.push_back(1);
    try {
      make()->load(more);
    } catch (const UserError&) {
      return "a state of another schedule is refused";
    }
    fail("load() accepts a state of ", more.size(), " numbers; it must refuse the state of another schedule with a ",
         "UserError");
  }

  const Subject& s_;
};

}  // namespace

void check_schedule(Report& report, const Subject& subject) {
  const ScheduleCheck check(subject);
  report.run("construction", [&] {
    check.make();
    return str("with a base of ", kBase);
  });
  if (report.failures() == 0) ScheduleCheck(subject).run(report);
}

}  // namespace lmx::app::conformance
