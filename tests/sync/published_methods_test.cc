// DGC against plain loops over all ranks, over 20 steps, one of which is skipped, and with a run that
// continues from a saved state; its bytes. compressors_test.cc has the methods without a state of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "lmx/vectors.h"
#include "sync/group.h"
#include "sync/shipped_strategies.h"

namespace lmx::sync_test {
namespace {

using lmx_cli::check::own_of;
using Doubles = std::vector<double>;

constexpr int kMethodRanks = 4, kManySteps = 20, kSkipped = 7, kSaved = 12;

// The state of one parameter, by rank, and what is kept of it for a step that is skipped.
struct MethodState {
  std::vector<Doubles> u, v;
};

// Returns the result of a step, and changes the state.
using Step =
    std::function<Doubles(MethodState& state, const std::vector<Doubles>& gradients, int step, const ParameterSpec& p)>;

std::vector<size_t> largest(const Doubles& v, size_t begin, size_t end, size_t k) {
  std::vector<size_t> ids(end - begin);
  std::iota(ids.begin(), ids.end(), begin);
  std::stable_sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
  ids.resize(std::min(k, ids.size()));
  return ids;
}

double norm_of(const Doubles& v) {
  return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
}

// Lin et al. 2018, algorithm 4 with momentum correction: u = m u + g, v = v + u; the largest of v are sent, and u and v
// are cleared there.
struct DgcSettings {
  double keep, momentum, clip;
  int warmup;
  int64_t sent(int step, int64_t n) const {
    const double part = step >= warmup ? keep : std::pow(keep, (step * 4 / warmup + 1) / 5.0);
    return static_cast<int64_t>(std::ceil(part * static_cast<double>(n)));
  }
};

Step dgc(const DgcSettings& c) {
  return [=](MethodState& s, const std::vector<Doubles>& gradients, int step, const ParameterSpec& p) {
    Doubles sum(gradients[0].size());
    for (size_t r = 0; r < gradients.size(); ++r) {
      const double norm = norm_of(gradients[r]), most = c.clip / std::sqrt(kMethodRanks),
                   factor = c.clip > 0 && norm > most ? most / norm : 1;
      for (size_t i = 0; i < sum.size(); ++i) {
        s.u[r][i] = c.momentum * s.u[r][i] + factor * gradients[r][i];
        s.v[r][i] += s.u[r][i];
      }
      for (const size_t i : largest(s.v[r], 0, sum.size(), static_cast<size_t>(c.sent(step, p.shape.numel())))) {
        sum[i] += s.v[r][i];
        s.v[r][i] = s.u[r][i] = 0;
      }
    }
    return sum;
  };
}

// Runs the strategy and the loops, with a skipped step, and from kSaved on also a run that has loaded the state.
class MethodRun {
 public:
  MethodRun(Communicator& comm, const Case& c, Step method)
      : comm_(comm), case_(c), subject_(c.subject()), run_(comm, subject_), method_(std::move(method)) {}

  // `sent`: the bytes that a rank sends for a parameter in a step.
  void check(const std::function<int64_t(int step, const ParameterSpec& p)>& sent) {
    std::unique_ptr<RankRun> resumed;
    for (int step = 0; step < kManySteps; ++step) {
      if (step == kSaved) resumed = resume();
      run_.reduce(step);
      size_t i = 0;
      for (const ParameterSpec& p : parameters()) compare(step, p, run_.values()[i++]);
      for (const lmx_cli::check::UnitExchange& unit : run_.exchanged())
        for (const ParameterSpec& p : parameters())
          if (p.name == unit.name && !p.sparse) {
            EXPECT_EQ(unit.bytes.sent, (kMethodRanks - 1) * sent(step, p)) << p.name;
          }
      if (resumed) {
        resumed->reduce(step);
        EXPECT_TRUE(lmx_cli::check::same_bits(resumed->values(), run_.values())) << "resumed, step " << step;
        resumed->after_step();
      }
      if (step == kSkipped) run_.strategy().discard();
      run_.after_step();
    }
  }

 private:
  std::unique_ptr<RankRun> resume() {
    auto resumed = std::make_unique<RankRun>(comm_, subject_);
    resumed->strategy().load(resumed->ctx(), run_.gather_states());
    return resumed;
  }

  void compare(int step, const ParameterSpec& p, const std::vector<float>& got) {
    if (p.sparse) return;
    const auto n = static_cast<size_t>(p.shape.numel());
    MethodState& state = states_[p.name];
    if (state.u.empty()) state.u.assign(kMethodRanks, Doubles(n)), state.v = state.u;
    const MethodState before = state;
    std::vector<Doubles> gradients;
    for (int r = 0; r < kMethodRanks; ++r) {
      const auto own = own_of(r, step, p).values;
      gradients.emplace_back(own.begin(), own.end());
      gradients.back().resize(n);
    }
    const Doubles want = method_(state, gradients, step, p);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-5) << p.name << '[' << i << "], step " << step;
    }
    if (step == kSkipped) state = before;
  }

  Communicator& comm_;
  Case case_;
  Subject subject_;
  RankRun run_;
  Step method_;
  std::map<std::string, MethodState> states_;
};

TEST(PublishedMethods, DgcEqualsPlainLoops) {
  for (const DgcSettings& c : {DgcSettings{0.1, 0.9, 0, 0}, DgcSettings{0.05, 0.5, 1.5, 8}}) {
    const Case rule{
        "dgc", str("{keep: ", c.keep, ", momentum: ", c.momentum, ", clip: ", c.clip, ", warmup: ", c.warmup, "}")};
    make_group(kMethodRanks)->run([&](Communicator& comm) {
      MethodRun(comm, rule, dgc(c)).check([&](int step, const ParameterSpec& p) {
        return 8 * c.sent(step, p.shape.numel());
      });
    });
  }
}

// Small gradients are summed exactly and have the momentum too; so has a single rank, which exchanges nothing.
TEST(PublishedMethods, DgcWithoutCompressionIsMomentum) {
  const auto expect = [](int ranks, const std::string& config) {
    make_group(ranks)->run([&](Communicator& comm) {
      RankRun run(comm, Case{"dgc", config}.subject());
      std::map<std::string, Doubles> u;
      for (int step = 0; step < 6; ++step) {
        run.reduce(step);
        run.after_step();
        size_t i = 0;
        for (const ParameterSpec& p : parameters()) {
          const std::vector<float>& got = run.values()[i++];
          if (p.sparse) continue;
          u[p.name].resize(got.size());
          const Doubles sum = sum_of(ranks, step, p, {}).sum;
          for (size_t k = 0; k < got.size(); ++k)
            ASSERT_NEAR(got[k], u[p.name][k] = 0.9 * u[p.name][k] + sum[k], 1e-5) << p.name << ", step " << step;
        }
      }
    });
  };
  expect(4, "{min_size: 100000}");
  expect(1, "{}");
}

}  // namespace
}  // namespace lmx::sync_test
