#include "app/plan/step.h"

#include <algorithm>
#include <cmath>

namespace lmx::plan {
namespace {

// The standard normal distribution.
double below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// The mean of the largest of n draws from it: the integral of (1 - P(x)^n) over x > 0, minus that of P(x)^n over x < 0.
double mean_of_largest(int n) {
  constexpr double kStep = 0.005, kEnd = 9;
  double sum = 0;
  for (double x = kStep / 2; x < kEnd; x += kStep)
    sum += kStep * ((1 - std::pow(below(x), n)) - std::pow(below(-x), n));
  return sum;
}

}  // namespace

double Spread::slowest(int ranks, double passes) const {
  if (ranks < 2 || relative <= 0) return 1;
  return 1 + relative / std::sqrt(passes) * mean_of_largest(ranks);
}

StepTime step_time(const Work& work, const std::vector<UnitWork>& units, int ranks, const Spread& spread,
                   bool overlap) {
  const double factor = spread.slowest(ranks, work.passes), passes = work.passes;
  const double mean = passes * (work.forward_s + work.backward_s);
  double ended = mean * factor;
  const double backward = ended - work.backward_s;  // begin of the last backward on the slowest rank
  StepTime t;
  double free = 0;
  for (const UnitWork& unit : units) {
    const double ready = overlap ? backward + std::min(unit.ready_s, work.backward_s) + t.delay_s : ended;
    const double alone = unit.transfer_s + unit.local_s, begin = std::max(free, ready);
    const double shared = alone + unit.beside * unit.local_s;  // beside a computation that needs the same core
    double part = 0;                                           // of the exchange that is beside backward
    if (overlap && shared > 0) part = std::clamp((ended + t.delay_s - begin) / shared, 0.0, 1.0);
    const double seconds = part * shared + (1 - part) * alone;
    free = begin + seconds;
    t.comm_s += seconds;
    t.delay_s += part * unit.delay_s;
  }
  ended += t.delay_s;
  t.exposed_s = std::max(0.0, free - ended);
  t.wait_s = mean * (factor - 1);
  t.compute_s = ended + work.update_s;
  return t;
}

}  // namespace lmx::plan
