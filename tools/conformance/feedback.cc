// Checks of the residual that a sync strategy keeps for later steps: discard() removes a step from it, rescale()
// multiplies it, and over many steps the results add up to the sum over ranks.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "conformance/rank.h"

namespace lmx_cli::check {
namespace {

using namespace lmx;

constexpr int kGroups[] = {1, 2, 3};

// |a - scale b| / |scale b| over all parameters, as Euclidean norms.
double distance(const Values& a, const Values& b, double scale) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i)
    for (size_t k = 0; k < b[i].size(); ++k) {
      const double expected = scale * static_cast<double>(b[i][k]);
      apart += std::pow(static_cast<double>(a[i][k]) - expected, 2);
      size += std::pow(expected, 2);
    }
  return std::isfinite(apart) ? std::sqrt(apart / std::max(size, 1e-30)) : INFINITY;
}

class FeedbackCheck {
 public:
  explicit FeedbackCheck(const Subject& s) : s_(s) {}

  std::string discard() const {
    const double apart = worst([&](Communicator& comm) {
      RankRun with(comm, s_), alone(comm, s_);
      with.discarded_step(0, {0, 1});
      with.step(2, {2, 1});
      alone.step(2, {2, 1});
      return distance(with.values(), alone.values(), 1);
    });
    if (!(apart <= kSame))
      fail("a step after a discarded one differs from the step alone by ", apart,
           " of its size; discard() must remove what reduce() has kept of the step");
    return "a step after a discarded one equals the step alone";
  }

  std::string rescale() const {
    const double apart = worst([&](Communicator& comm) {
      RankRun scaled(comm, s_), plain(comm, s_);
      for (RankRun* run : {&scaled, &plain}) run->step(0, {0, 1});
      scaled.strategy().rescale(2);
      scaled.step(2, {2, 2});
      plain.step(2, {2, 1});
      return distance(scaled.values(), plain.values(), 2);
    });
    if (!(apart <= kSame))
      fail("after rescale(2), doubled gradients give something else than the doubled result, by ", apart,
           " of its size; rescale() must multiply what is kept of earlier steps");
    return "after rescale(2), doubled gradients give the doubled result";
  }

  // If all steps have the same gradient, the mean result of a strategy that later sends what it left out converges to
  // the sum. That of a strategy that scales the sum, or sends residuals twice, does not.
  std::string mean() const {
    if (!s_.approximate) throw Skipped("every step gives the sum");
    const double apart = worst([&](Communicator& comm) { return mean_distance(comm); });
    if (!(apart <= kMean))
      fail("the mean of ", kSteps, " steps with one gradient differs from the sum over ranks by ", apart,
           " of its size, --approximate allows ", kMean,
           "; a strategy must send later what it leaves out, once. If it sends very little in a step, check it with a "
           "larger share (--config)");
    return str("--approximate: a step may differ from the sum, the mean of ", kSteps, " steps by ", kMean,
               " of its size; it differs by ", apart);
  }

 private:
  static constexpr int kSteps = 256;
  static constexpr double kSame = 1e-5, kMean = 0.3;

  // Returns the largest number that `body` returns on any rank of any group.
  template <class Body>
  double worst(const Body& body) const {
    double worst = 0;
    std::mutex mutex;
    for (const int ranks : kGroups)
      virtual_group(ranks)->run([&](Communicator& comm) {
        const double one = body(comm);
        const std::lock_guard lock(mutex);
        worst = std::max(worst, one);
      });
    return worst;
  }

  double mean_distance(Communicator& comm) const {
    RankRun run(comm, s_);
    const std::vector<ParameterSpec> specs = parameters();
    std::vector<std::vector<double>> got(specs.size()), wanted(specs.size());
    for (int step = 0; step < kSteps; ++step) {
      run.step(step, {0, 1});
      for (size_t i = 0; i < specs.size(); ++i) {
        const std::vector<double> sum = sum_of(comm.size(), 0, specs[i], run.selected());
        got[i].resize(sum.size());
        wanted[i].resize(sum.size());
        for (size_t k = 0; k < sum.size(); ++k) {
          got[i][k] += static_cast<double>(run.values()[i][k]);
          wanted[i][k] += sum[k];
        }
      }
    }
    double apart = 0, size = 0;
    for (size_t i = 0; i < specs.size(); ++i)
      for (size_t k = 0; k < got[i].size(); ++k) {
        apart += std::pow(got[i][k] - wanted[i][k], 2);
        size += std::pow(wanted[i][k], 2);
      }
    return std::isfinite(apart) ? std::sqrt(apart / std::max(size, 1e-30)) : INFINITY;
  }

  const Subject& s_;
};

}  // namespace

void check_feedback(Report& report, const Subject& subject) {
  const FeedbackCheck check(subject);
  report.run("discard", [&] { return check.discard(); });
  report.run("rescale", [&] { return check.rescale(); });
  report.run("mean", [&] { return check.mean(); });
}

}  // namespace lmx_cli::check
