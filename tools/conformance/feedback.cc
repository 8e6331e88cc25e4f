// Checks of the residual that a sync strategy keeps for later steps: discard() removes a step from it, rescale()
// multiplies it, and over many steps the results add up to the sum over ranks. A value that is not finite is seen in
// its step and leaves nothing.
#include <algorithm>
#include <cmath>

#include "conformance/sync.h"

namespace lmx::app::conformance {
namespace {

constexpr double kSame = 1e-5;

using Wide = std::vector<std::vector<double>>;  // dense values of each parameter

Wide widened(const Values& values, double scale) {
  Wide wide;
  for (const std::vector<float>& list : values) {
    wide.emplace_back();
    for (const float v : list) wide.back().push_back(scale * static_cast<double>(v));
  }
  return wide;
}

// |a - b| / |b| over all parameters, as Euclidean norms.
double distance(const Wide& a, const Wide& b) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i)
    for (size_t k = 0; k < b[i].size(); ++k) {
      apart += std::pow(a[i][k] - b[i][k], 2);
      size += std::pow(b[i][k], 2);
    }
  return std::isfinite(apart) ? std::sqrt(apart / std::max(size, 1e-30)) : INFINITY;
}

// A step in which every rank has a gradient for every parameter, after the first one.
constexpr int kLater = 3;

double mean_distance(Communicator& comm, const Subject& s) {
  RankRun run(comm, s);
  const std::vector<ParameterSpec> specs = parameters();
  Wide got(specs.size()), wanted(specs.size()), sums;
  for (int step = 0; step < kMeanSteps; ++step) {
    run.step(step, {0, 1});
    if (step == 0 || !run.selected().empty()) {  // otherwise the sums are those of the step before
      sums.clear();
      for (const ParameterSpec& p : specs) sums.push_back(sum_of(comm.size(), 0, p, run.selected()).sum);
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      const std::vector<double>& sum = sums[i];
      got[i].resize(sum.size());
      wanted[i].resize(sum.size());
      for (size_t k = 0; k < sum.size(); ++k) {
        got[i][k] += static_cast<double>(run.values()[i][k]);
        wanted[i][k] += sum[k];
      }
    }
  }
  return distance(got, wanted);
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// The step `given`, in which one value is not finite, between steps 0 and kLater. `wanted`: the values of kLater in a
// run without the step.
void observe_value(Communicator& comm, const Subject& s, const Given& given, const Values& wanted, Observation& seen) {
  const auto add = [&](const std::string& finding) {
    seen.add("overflow", str("rank ", comm.rank(), " of ", comm.size(), ": the last rank's gradient of ", given.spoiled,
                             " has a value ", given.value, ", ", finding));
  };
  RankRun with(comm, s);
  const std::vector<ParameterSpec>& specs = with.specs();
  const auto spoiled = std::find_if(specs.begin(), specs.end(), [&](const auto& p) { return p.name == given.spoiled; });
  if (spoiled == specs.end()) return;
  with.step(0, {0, 1});
  with.reduce(kLater, given);
  // Rows that a strategy has not selected are not used, whatever they contain.
  const auto selected = with.selected().find(given.spoiled);
  const Own own = own_of(comm.size() - 1, kLater, *spoiled);
  const int32_t row = own.indices.empty() ? 0 : own.indices[0];
  const bool used = selected == with.selected().end() || selected->second.back().contains(row);
  if (used && all_finite(with.values()[static_cast<size_t>(spoiled - specs.begin())]))
    add("and all values of the result are finite; a run must see an overflow in its step, on every rank");
  with.discard();
  with.after_step();
  with.step(kLater, {kLater, 1});
  if (!same_bits(with.values(), wanted))
    add("and after discard() the next step is not that of a run without this step; discard() must restore what was "
        "kept before");
}

}  // namespace

void observe_discard(Communicator& comm, const Subject& s, Observation& seen) {
  RankRun with(comm, s), alone(comm, s);
  with.reduce(0);
  with.discard();
  with.after_step();
  with.step(kLater, {kLater, 1});
  alone.step(kLater, {kLater, 1});
  const double apart = distance(widened(with.values(), 1), widened(alone.values(), 1));
  if (!(apart <= kSame))
    seen.add("discard", str("a step after a discarded one differs from the step alone by ", apart,
                            " of its size; discard() must remove what reduce() has kept of the step"));
}

void observe_rescale(Communicator& comm, const Subject& s, Observation& seen) {
  RankRun scaled(comm, s), plain(comm, s);
  if (scaled.direction()) return;
  for (RankRun* run : {&scaled, &plain}) run->step(0, {0, 1});
  scaled.strategy().rescale(2);
  scaled.step(kLater, {kLater, 2});
  plain.step(kLater, {kLater, 1});
  const double apart = distance(widened(scaled.values(), 1), widened(plain.values(), 2));
  if (!(apart <= kSame))
    seen.add("rescale", str("after rescale(2), doubled gradients give something else than the doubled result, by ",
                            apart, " of its size; rescale() must multiply what is kept of earlier steps"));
}

void observe_overflow(Communicator& comm, const Subject& s, Observation& seen) {
  RankRun without(comm, s);
  without.step(0, {0, 1});
  without.step(kLater, {kLater, 1});
  for (const float value : {INFINITY, NAN})
    for (const char* name : {"gate", "softmax"})
      observe_value(comm, s, {kLater, 1, name, value}, without.values(), seen);
}

void observe_mean(Communicator& comm, const Subject& s, Observation& seen) {
  const double apart = mean_distance(comm, s);
  seen.distances["mean"] = apart;
  if (!(apart <= kMeanBound))
    seen.add("mean", str("the mean of ", kMeanSteps, " steps with one gradient differs from the sum over ranks by ",
                         apart, " of its size, --approximate allows ", kMeanBound,
                         "; a strategy must send later what it leaves out, once. If it sends very little in a step, "
                         "check it with a larger share (--config)"));
}

}  // namespace lmx::app::conformance
