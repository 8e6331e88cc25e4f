// DGC, DeMo and 1-bit Adam against plain loops over all ranks, over 20 steps and more, some of which are skipped, and
// with runs that continue from a saved state; their bytes. compressors_test.cc has the methods without a state of their
// own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <numeric>
#include <set>

#include "lmx/vectors.h"
#include "sync/group.h"
#include "sync/shipped_strategies.h"

namespace lmx::sync_test {
namespace {

using app::conformance::own_of;
using Doubles = std::vector<double>;

constexpr int kMethodRanks = 4, kManySteps = 20, kSkipped = 7, kSaved = 12;

// The state of one parameter, by rank, and what is kept of it for a step that is skipped.
struct MethodState {
  std::vector<Doubles> u, v;
};

// Returns the result of a step, and changes the state.
using Step =
    std::function<Doubles(MethodState& state, const std::vector<Doubles>& gradients, int step, const ParameterSpec& p)>;

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

// The chunks of a parameter as (rows, columns), a vector as one row: lists of the elements of each.
std::vector<std::vector<size_t>> chunks_of(const ParameterSpec& p, int64_t most, int64_t& h, int64_t& w) {
  const auto divisor = [&](int64_t n) {
    int64_t d = std::min(n, most);
    while (n % d) --d;
    return d;
  };
  const int64_t rows = p.shape.rank() > 1 ? p.shape[0] : 1, columns = p.shape.numel() / rows;
  h = divisor(rows);
  w = divisor(columns);
  std::vector<std::vector<size_t>> chunks;
  for (int64_t y = 0; y < rows; y += h)
    for (int64_t x = 0; x < columns; x += w) {
      chunks.emplace_back();
      for (int64_t i = 0; i < h; ++i)
        for (int64_t j = 0; j < w; ++j) chunks.back().push_back(static_cast<size_t>((y + i) * columns + x + j));
    }
  return chunks;
}

double cosine(int64_t k, int64_t i, int64_t n) {
  const auto size = static_cast<double>(n);
  return std::sqrt((k ? 2 : 1) / size) *
         std::cos(std::numbers::pi * (static_cast<double>(i) + 0.5) * static_cast<double>(k) / size);
}

// The orthonormal DCT-II of a matrix (h, w), or its inverse.
Doubles transformed(const Doubles& m, int64_t h, int64_t w, bool inverse) {
  Doubles out(m.size());
  for (int64_t a = 0; a < h; ++a)
    for (int64_t b = 0; b < w; ++b)
      for (int64_t i = 0; i < h; ++i)
        for (int64_t j = 0; j < w; ++j)
          out[static_cast<size_t>(a * w + b)] +=
              m[static_cast<size_t>(i * w + j)] *
              (inverse ? cosine(i, a, h) * cosine(j, b, w) : cosine(a, i, h) * cosine(b, j, w));
  return out;
}

// Peng et al. 2024, algorithm 1: m = decay m + g; the `top` largest components of each chunk are sent and subtracted;
// the result is the sign of the means of the components over the ranks that have sent them. Returned before its sign.
Step demo(double decay, size_t top, int64_t most) {
  return [=](MethodState& s, const std::vector<Doubles>& gradients, int, const ParameterSpec& p) {
    int64_t h = 0, w = 0;
    Doubles result(gradients[0].size());
    for (const std::vector<size_t>& chunk : chunks_of(p, most, h, w)) {
      Doubles sum(chunk.size()), count(chunk.size());
      for (size_t r = 0; r < gradients.size(); ++r) {
        Doubles m;
        for (const size_t i : chunk) m.push_back(decay * s.v[r][i] + gradients[r][i]);
        Doubles c = transformed(m, h, w, false), rest = c;
        for (const size_t k : largest(c, 0, c.size(), top)) {
          sum[k] += c[k];
          ++count[k];
          rest[k] = 0;
        }
        rest = transformed(rest, h, w, true);
        for (size_t i = 0; i < chunk.size(); ++i) s.v[r][chunk[i]] = rest[i];
      }
      for (size_t k = 0; k < sum.size(); ++k)
        if (count[k] > 0) sum[k] /= count[k];
      const Doubles back = transformed(sum, h, w, true);
      for (size_t i = 0; i < chunk.size(); ++i) result[chunk[i]] = back[i];
    }
    return result;
  };
}

// Runs the strategy and the loops, with a skipped step, and from kSaved on also a run that has loaded the state.
class MethodRun {
 public:
  MethodRun(Communicator& comm, const Case& c, Step method)
      : case_(c), subject_(c.subject()), run_(comm, subject_), method_(std::move(method)) {}

  // `sent`: the bytes that a rank sends for a parameter in a step.
  void check(const std::function<int64_t(int step, const ParameterSpec& p)>& sent) {
    std::unique_ptr<RankRun> resumed;
    for (int step = 0; step < kManySteps; ++step) {
      if (step == kSaved) resumed = run_.resumed(subject_);
      run_.reduce(step);
      size_t i = 0;
      for (const ParameterSpec& p : parameters()) compare(step, p, run_.values()[i++]);
      for (const app::conformance::UnitExchange& unit : run_.exchanged())
        for (const ParameterSpec& p : parameters())
          if (p.name == unit.name && !p.sparse) {
            EXPECT_EQ(unit.bytes.sent, (kMethodRanks - 1) * sent(step, p)) << p.name;
          }
      if (resumed) {
        resumed->reduce(step);
        EXPECT_TRUE(app::conformance::same_bits(resumed->values(), run_.values())) << "resumed, step " << step;
        resumed->after_step();
      }
      if (step == kSkipped) run_.strategy().discard();
      run_.after_step();
    }
  }

 private:
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
    const bool signs = case_.strategy == "demo";
    for (size_t i = 0; i < n; ++i) {
      if (signs && std::abs(want[i]) < 1e-6) continue;  // its sign is rounding
      ASSERT_NEAR(got[i], signs ? std::copysign(1, want[i]) : want[i], 1e-5)
          << p.name << '[' << i << "], step " << step;
    }
    if (step == kSkipped) state = before;
  }

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

TEST(PublishedMethods, DemoEqualsPlainLoops) {
  make_group(kMethodRanks)->run([&](Communicator& comm) {
    MethodRun(comm, {"demo", "{decay: 0.9, top: 5, chunk: 11}"}, demo(0.9, 5, 11))
        .check([](int, const ParameterSpec& p) {
          int64_t h = 0, w = 0;
          const auto chunks = static_cast<int64_t>(chunks_of(p, 11, h, w).size()),
                     sent = chunks * std::min<int64_t>(5, h * w);
          const auto bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(h * w - 1))));
          return 4 * sent + (sent * bits + 7) / 8;
        });
  });
}

// Tang et al. 2021, algorithm 1, with Adam's bias correction. The compression of a part of a vector is its signs, times
// the root of the mean square; rank r owns part r of each parameter.
struct OneBitAdamLoop {
  int freeze;
  bool corrects;
  double b1 = 0.9, b2 = 0.99, eps = 1e-8;
  int updates = 0;
  struct Of {
    Doubles m, v, owner;        // `owner`: what the owners have not sent of the sum
    std::vector<Doubles> rank;  // what each rank has not sent of its momentum
  };

  // x becomes what is sent of the elements [begin, end); returns the rest of them.
  static Doubles sent(Doubles& x, size_t begin, size_t end) {
    double squares = 0;
    Doubles rest(x.size());
    for (size_t i = begin; i < end; ++i) squares += x[i] * x[i];
    for (size_t i = begin; i < end; ++i) {
      const double size = std::sqrt(squares / static_cast<double>(end - begin)), value = x[i] > 0 ? size : -size;
      rest[i] = x[i] - value;
      x[i] = value;
    }
    return rest;
  }

  Doubles compressed_sum(Of& s, const std::vector<Doubles>& gradients) const {
    const size_t n = s.m.size(), ranks = gradients.size();
    Doubles sum(n);
    for (size_t owner = 0; owner < ranks; ++owner) {
      const size_t begin = n * owner / ranks, end = n * (owner + 1) / ranks;
      for (size_t r = 0; r < ranks; ++r) {
        Doubles x(n);
        for (size_t i = begin; i < end; ++i)
          x[i] = b1 * s.m[i] / static_cast<double>(ranks) + (1 - b1) * gradients[r][i] + s.rank[r][i];
        const Doubles rest = sent(x, begin, end);
        for (size_t i = begin; i < end; ++i) sum[i] += x[i], s.rank[r][i] = rest[i];
      }
      for (size_t i = begin; i < end; ++i) sum[i] += s.owner[i];
      const Doubles rest = sent(sum, begin, end);
      for (size_t i = begin; i < end; ++i) s.owner[i] = rest[i];
    }
    return sum;
  }

  Doubles step(Of& s, const std::vector<Doubles>& gradients) const {
    const size_t n = gradients[0].size();
    if (s.m.empty()) s = {Doubles(n), Doubles(n), Doubles(n), std::vector<Doubles>(gradients.size(), Doubles(n))};
    const bool frozen = updates >= freeze;
    if (frozen) s.m = compressed_sum(s, gradients);
    const int t = updates + 1, variance_t = std::min(t, freeze);
    Doubles direction(n);
    for (size_t i = 0; i < n; ++i) {
      double g = 0;
      for (const Doubles& own : gradients) g += own[i];
      if (!frozen) s.m[i] = b1 * s.m[i] + (1 - b1) * g, s.v[i] = b2 * s.v[i] + (1 - b2) * g * g;
      const double m = corrects ? s.m[i] / (1 - std::pow(b1, t)) : s.m[i],
                   v = corrects ? s.v[i] / (1 - std::pow(b2, variance_t)) : s.v[i];
      direction[i] = m / (std::sqrt(v) + eps);
    }
    return direction;
  }

  // The bytes that a rank sends for all parameters.
  int64_t bytes(const std::vector<ParameterSpec>& params, int rank) const {
    int64_t sent = 0, all = 0;
    for (const ParameterSpec& p : params) {
      const int64_t n = p.shape.numel();
      all += n;
      for (int r = 0; r < kMethodRanks; ++r) {
        const int64_t part = n * (r + 1) / kMethodRanks - n * r / kMethodRanks, encoded = part ? 4 + (part + 7) / 8 : 0;
        sent += r == rank ? (kMethodRanks - 1) * encoded : encoded;
      }
    }
    const int64_t own = all * (rank + 1) / kMethodRanks - all * rank / kMethodRanks;
    return updates >= freeze ? sent : 4 * (all - own + (kMethodRanks - 1) * own);
  }
};

void expect_one_bit_adam(Communicator& comm, OneBitAdamLoop loop) {
  constexpr int kAll = 48;
  const std::set<int> skipped{7, 30}, saved{12, 33};
  const Subject subject =
      Case{"one_bit_adam", str("{freeze: ", loop.freeze, ", betas: [0.9, 0.99], bias_correction: ", loop.corrects, "}")}
          .subject();
  RankRun run(comm, subject);
  std::unique_ptr<RankRun> resumed;
  std::map<std::string, OneBitAdamLoop::Of> states;
  for (int step = 0; step < kAll; ++step) {
    if (saved.contains(step)) resumed = run.resumed(subject);
    run.reduce(step);
    int64_t sent = 0;
    for (const app::conformance::UnitExchange& unit : run.exchanged()) sent += unit.bytes.sent;
    EXPECT_EQ(sent, loop.bytes(run.specs(), comm.rank())) << "step " << step;
    const auto before = states;
    for (size_t k = 0; k < run.specs().size(); ++k) {
      const ParameterSpec& p = run.specs()[k];
      std::vector<Doubles> gradients;
      for (int r = 0; r < kMethodRanks; ++r) {
        const auto own = own_of(r, step, p).values;
        gradients.emplace_back(own.begin(), own.end());
        gradients.back().resize(static_cast<size_t>(p.shape.numel()));
      }
      const Doubles want = loop.step(states[p.name], gradients);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(run.values()[k][i], want[i], 1e-4 * (1 + std::abs(want[i])))
            << p.name << '[' << i << "], step " << step;
    }
    if (resumed) {
      resumed->reduce(step);
      EXPECT_TRUE(app::conformance::same_bits(resumed->values(), run.values())) << "resumed, step " << step;
    }
    for (RankRun* each : {&run, resumed.get()}) {
      if (!each) continue;
      if (skipped.contains(step)) each->discard();
      each->after_step();
    }
    if (skipped.contains(step))
      states = before;
    else
      ++loop.updates;
  }
}

TEST(PublishedMethods, OneBitAdamEqualsAPlainLoop) {
  for (const bool corrects : {true, false})
    make_group(kMethodRanks)->run([&](Communicator& comm) {
      expect_one_bit_adam(comm, {.freeze = 20, .corrects = corrects});
    });
}

// One bit cannot represent the momentum 0, and a variance of 0 would divide by eps.
TEST(PublishedMethods, OneBitAdamLeavesElementsWithoutAVarianceAlone) {
  make_group(2)->run([](Communicator& comm) {
    Context ctx = comm::rank_context(comm);
    const Subject subject = Case{"one_bit_adam", "freeze: 2"}.subject();
    const SyncEnv env{"all", {{"w", {4}, {}, false}}, ctx.rank, 2, RandomKey(3)};
    const auto rule = create<SyncFactory>(subject.plugin, subject.config, "sync.all", env);
    for (int step = 0; step < 6; ++step) {
      Var w(ctx.zeros({4}), true, "w");
      const std::vector<float> own{1, 0, -2, step == 4 ? 1.0f : 0.0f};
      w.grad().dense = Tensor::from<float>(ctx.allocator, {4}, own);
      rule->strategy()->reduce(ctx, std::span(&w, 1));
      rule->after_step(ctx);
      const auto got = w.grad().dense.values<float>();
      EXPECT_GT(got[0], 0.1f);
      EXPECT_EQ(got[1], 0);
      EXPECT_LT(got[2], -0.1f);
      EXPECT_EQ(got[3], 0);
    }
  });
}

}  // namespace
}  // namespace lmx::sync_test
