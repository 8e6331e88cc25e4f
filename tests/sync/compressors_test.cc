// Compressors of gradients against plain loops over all ranks, over several steps with residuals; their bytes in closed
// form; their units; and resuming with another number of ranks. The conformance suite checks the rest.
#include <cmath>
#include <functional>

#include "lmx/error.h"
#include "lmx/feedback_strategy.h"
#include "recipe/sync_rules.h"
#include "sync/group.h"
#include "sync/shipped_strategies.h"
#include "test.h"

namespace lmx::sync_test {
namespace {

using app::conformance::own_of;
using namespace lmx_test;
using testing::Contains;

using Floats = std::vector<float>;
using ByRank = std::vector<Floats>;  // of one parameter

// Returns the sum of what the ranks send of `v`, their gradients plus their residuals, and leaves the residuals in it.
using Method = std::function<Floats(ByRank& v, const RandomKey& key, const ParameterSpec& p)>;

Method top_k(double keep, size_t chunk) {
  return [=](ByRank& v, const RandomKey&, const ParameterSpec&) {
    const size_t n = v[0].size(), size = chunk ? chunk : n;
    Floats sum(n);
    for (Floats& own : v)
      for (size_t at = 0; at < n; at += size)
        for (const size_t i : largest(own, at, std::min(n, at + size),
                                      static_cast<size_t>(std::ceil(keep * static_cast<double>(size))))) {
          sum[i] += own[i];
          own[i] = 0;
        }
    return sum;
  };
}

Method random_k(double keep) {
  return [=](ByRank& v, const RandomKey& key, const ParameterSpec&) {
    const size_t n = v[0].size();
    Floats sum(n);
    for (uint64_t j = 0; j < static_cast<uint64_t>(std::ceil(keep * static_cast<double>(n))); ++j) {
      const size_t i = permute(key, j, n);
      for (Floats& own : v) {
        sum[i] += own[i];
        own[i] = 0;
      }
    }
    return sum;
  };
}

// The random numbers are those of lmx: word j of Philox block g belongs to element 4 g + j.
Method qsgd(int bits, size_t bucket, bool largest_value, bool feedback) {
  return [=](ByRank& v, const RandomKey& key, const ParameterSpec&) {
    const auto levels = static_cast<float>((1 << (bits - 1)) - 1);
    Floats sum(v[0].size());
    for (uint64_t r = 0; r < v.size(); ++r) {
      const uint64_t seed = key.fold(r).value();
      Floats& own = v[r];
      for (size_t begin = 0; begin < own.size(); begin += bucket) {
        const size_t end = std::min(own.size(), begin + bucket);
        double norm = 0;
        for (size_t i = begin; i < end; ++i) {
          const auto x = static_cast<double>(std::abs(own[i]));
          norm = largest_value ? std::max(norm, x) : norm + x * x;
        }
        const auto by = static_cast<float>(largest_value ? norm : std::sqrt(norm));
        for (size_t i = begin; i < end; ++i) {
          const auto words = philox({static_cast<uint32_t>(i / 4), 0, 4, 0},
                                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
          const float x = by > 0 ? std::abs(own[i]) / by * levels : 0;
          float level = std::floor(x);
          if (static_cast<double>(words[i % 4]) * 0x1p-32 < static_cast<double>(x - level)) level += 1;
          const float sent = std::copysign(by * level / levels, own[i]);
          sum[i] += sent;
          if (feedback) own[i] -= sent;
        }
      }
      if (!feedback) std::fill(own.begin(), own.end(), 0.0f);
    }
    return sum;
  };
}

Method sign_majority() {
  return [](ByRank& v, const RandomKey&, const ParameterSpec&) {
    Floats sum(v[0].size());
    for (size_t i = 0; i < sum.size(); ++i) {
      int votes = 0;
      for (const Floats& own : v) {
        const bool any = std::any_of(own.begin(), own.end(), [](float x) { return x != 0; });
        votes += any ? own[i] >= 0 ? 1 : -1 : 0;
      }
      sum[i] = votes >= 0 ? 1 : -1;
    }
    for (Floats& own : v) std::fill(own.begin(), own.end(), 0.0f);
    return sum;
  };
}

using Matrix = std::vector<std::vector<double>>;  // rows

void orthonormalise(Matrix& m) {
  for (size_t c = 0; c < m[0].size(); ++c) {
    const auto dot = [&](size_t d) {
      double sum = 0;
      for (const auto& row : m) sum += row[c] * row[d];
      return sum;
    };
    for (size_t d = 0; d < c; ++d) {
      const double along = dot(d);
      for (auto& row : m) row[c] -= along * row[d];
    }
    const double norm = std::sqrt(dot(c));
    for (auto& row : m) row[c] /= norm;
  }
}

// Keeps the second factor of each parameter.
Method power_sgd(size_t rank) {
  const auto kept = std::make_shared<std::map<std::string, Matrix>>();
  return [=](ByRank& v, const RandomKey& key, const ParameterSpec& s) {
    const auto rows = static_cast<size_t>(s.shape[0]), columns = static_cast<size_t>(s.shape[1]),
               r = std::min({rank, rows, columns});
    Matrix& q = (*kept)[s.name];
    uint64_t number = 0;
    if (q.empty())
      for (q.resize(columns, std::vector<double>(r)); auto& row : q)
        for (double& x : row) x = key.normal(number++);
    Matrix m(rows, std::vector<double>(columns)), p(rows, std::vector<double>(r));  // m: summed over ranks
    for (const Floats& own : v)
      for (size_t i = 0; i < own.size(); ++i) m[i / columns][i % columns] += static_cast<double>(own[i]);
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j)
        for (size_t k = 0; k < r; ++k) p[i][k] += m[i][j] * q[j][k];
    orthonormalise(p);
    q.assign(columns, std::vector<double>(r));
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j)
        for (size_t k = 0; k < r; ++k) q[j][k] += m[i][j] * p[i][k];
    Floats sum(rows * columns);
    for (size_t i = 0; i < sum.size(); ++i) {
      double x = 0;
      for (size_t k = 0; k < r; ++k) x += p[i / columns][k] * q[i % columns][k];
      sum[i] = static_cast<float>(x);
      for (Floats& own : v) own[i] -= static_cast<float>(x / static_cast<double>(v.size()));
    }
    return sum;
  };
}

// The bytes that rank `from` sends to all others for n elements.
using Bytes = std::function<int64_t(int64_t n, int ranks, int from)>;
int64_t part(int64_t n, int ranks, int r) {
  return n * (r + 1) / ranks - n * r / ranks;
}

// all_reduce of n elements
int64_t summed(int64_t n, int ranks, int r) {
  return 4 * (n - part(n, ranks, r) + (ranks - 1) * part(n, ranks, r));
}

struct Compressor {
  std::string name, config;
  Method method;
  Bytes bytes;
  int64_t collectives;
  int64_t min_size = 0;
  int64_t sent(const ParameterSpec& p, int ranks, int from) const {
    if (name != "power_sgd") return bytes(p.shape.numel(), ranks, from);
    const int64_t r = std::min<int64_t>({3, p.shape[0], p.shape[1]});
    return summed(r * p.shape[0], ranks, from) + summed(r * p.shape[1], ranks, from);
  }
  bool compresses(const ParameterSpec& p) const {
    return !p.sparse && p.shape.numel() >= min_size && (name != "power_sgd" || p.shape.rank() > 1);
  }
};

int64_t ceil_of(double keep, int64_t n) {
  return static_cast<int64_t>(std::ceil(keep * static_cast<double>(n)));
}

std::vector<Compressor> compressors() {
  const Bytes qsgd4 = [](int64_t n, int ranks, int) { return (4 * ((n + 511) / 512) + (n * 4 + 7) / 8) * (ranks - 1); };
  return {
      {"top_k", "{keep: 0.1}", top_k(0.1, 0),
       [](int64_t n, int ranks, int) { return 8 * ceil_of(0.1, n) * (ranks - 1); }, 2},
      {"top_k", "{keep: 0.1, chunk: 64}", top_k(0.1, 64),
       [](int64_t n, int ranks, int) { return 8 * (n / 64 * 7 + std::min<int64_t>(7, n % 64)) * (ranks - 1); }, 2},
      {"random_k", "{keep: 0.1}", random_k(0.1),
       [](int64_t n, int ranks, int r) { return summed(ceil_of(0.1, n), ranks, r); }, 2},
      {"qsgd", "{min_size: 0}", qsgd(4, 512, false, false), qsgd4, 2},
      {"qsgd", "{min_size: 0, feedback: true}", qsgd(4, 512, false, true), qsgd4, 2},
      {"qsgd", "{min_size: 20, feedback: true, bits: 3, bucket: 100, norm: max}", qsgd(3, 100, true, true),
       [](int64_t n, int ranks, int) { return (4 * ((n + 99) / 100) + (n * 3 + 7) / 8) * (ranks - 1); }, 2, 20},
      {"sign_majority", "bucket_mb: 0", sign_majority(),
       [](int64_t n, int ranks, int r) {
         const int64_t bytes = (n + 7) / 8, own = part(bytes, ranks, r);
         return 8 * (ranks - 1) + bytes - own + (ranks - 1) * own;
       },
       3},
      {"power_sgd", "{rank: 3}", power_sgd(3), {}, 4},
  };
}

// The reference of all ranks, with the residuals of every parameter.
class Reference {
 public:
  Reference(const Compressor& c, int ranks) : c_(c), ranks_(ranks) {}

  Floats step(int step, const ParameterSpec& p) {
    const bool direction = c_.name == "sign_majority";
    if (!c_.compresses(p) || (ranks_ == 1 && !direction)) return exact(step, p);
    ByRank v;
    for (int r = 0; r < ranks_; ++r) {
      Floats own = own_of(r, step, p).values;
      own.resize(static_cast<size_t>(p.shape.numel()));
      v.push_back(std::move(own));
    }
    ByRank& residual = residuals_[p.name];
    for (size_t r = 0; r < residual.size(); ++r)
      for (size_t i = 0; i < v[r].size(); ++i) v[r][i] += residual[r][i];
    const Floats sum = c_.method(v, RandomKey(3).fold(p.name).fold(static_cast<uint64_t>(step)), p);
    residual = v;
    return sum;
  }

 private:
  Floats exact(int step, const ParameterSpec& p) const {
    const Sum sum = sum_of(ranks_, step, p, {});
    Floats values(sum.sum.begin(), sum.sum.end());
    if (c_.name == "sign_majority")
      for (float& v : values) v = std::abs(v) < 1e-7f ? 0 : std::copysign(1.0f, v);
    return values;
  }
  const Compressor& c_;
  int ranks_;
  std::map<std::string, ByRank> residuals_;
};

class Compressors : public testing::TestWithParam<std::tuple<size_t, int>> {};

TEST_P(Compressors, EqualPlainLoopsAndSendTheirBytes) {
  const int ranks = std::get<1>(GetParam());
  make_group(ranks)->run([&](Communicator& comm) {
    const Compressor c = compressors()[std::get<0>(GetParam())];
    SCOPED_TRACE(c.name + " " + c.config);
    RankRun run(comm, Case{c.name, c.config}.subject());
    Reference reference(c, ranks);
    for (int step = 0; step < kSteps; ++step) {
      run.reduce(step);
      size_t i = 0;
      for (const ParameterSpec& p : parameters()) {
        const Floats want = reference.step(step, p), &got = run.values()[i++];
        ASSERT_EQ(got.size(), want.size());
        for (size_t k = 0; k < want.size(); ++k)
          ASSERT_NEAR(got[k], want[k], 1e-6) << p.name << '[' << k << "], step " << step;
      }
      for (const app::conformance::UnitExchange& unit : run.exchanged())
        for (const ParameterSpec& p : parameters()) {
          if (p.name != unit.name || !c.compresses(p)) continue;
          EXPECT_EQ(unit.bytes.sent, ranks == 1 ? 0 : c.sent(p, ranks, comm.rank())) << p.name;
          if (ranks > 1) {
            EXPECT_EQ(unit.bytes.collectives, c.collectives) << p.name;
          }
        }
      run.after_step();
    }
  });
}
INSTANTIATE_TEST_SUITE_P(All, Compressors, testing::Combine(testing::Range<size_t>(0, 8), testing::Range(1, 5)));

std::vector<std::vector<std::string>> units(const std::string& name, const std::string& config) {
  std::vector<std::vector<std::string>> units;
  make_group(1)->run([&](Communicator& comm) { units = RankRun(comm, Case{name, config}.subject()).units(); });
  return units;
}

TEST(FeedbackStrategy, SmallGradientsShareABucketAndLargeOnesAreCompressedAlone) {
  EXPECT_THAT(units("top_k", "{min_size: 29}"),
              ElementsAre(ElementsAre("bias"), ElementsAre("gate"), ElementsAre("softmax_bias"), ElementsAre("softmax"),
                          ElementsAre("tiny"), ElementsAre("emb"), ElementsAre("edge")));
  EXPECT_THAT(units("top_k", "{min_size: 30}"), Contains(ElementsAre("edge", "bias")));
  EXPECT_THAT(units("top_k", "{bucket_mb: 1}"), Contains(ElementsAre("edge", "bias", "gate")));
}

// The sum of all residuals is not lost when the number of ranks changes.
TEST(FeedbackStrategy, AnotherNumberOfRanksSharesTheResiduals) {
  const auto four = make_group(4);  // finds the plugins
  const Subject subject = Case{"top_k", "{keep: 0.1}"}.subject();
  std::vector<StateDict> saved;
  four->run([&](Communicator& comm) {
    RankRun run(comm, subject);
    run.step(0, {0, 1});
    const std::vector<StateDict> states = run.gather_states();
    if (comm.rank() == 0) saved = states;
    comm.barrier();
  });
  const auto total = [](const std::vector<StateDict>& states) {
    std::vector<double> sum(24 * 33);
    for (const StateDict& state : states)
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i] += static_cast<double>(state.at("gate.push").data<float>()[static_cast<int64_t>(i)]);
    return sum;
  };
  make_group(3)->run([&](Communicator& comm) {
    RankRun run(comm, subject);
    run.strategy().load(run.ctx(), saved);
    const std::vector<double> want = total(saved), got = total(run.gather_states());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  });
  make_group(1)->run([&](Communicator& comm) {  // one rank compresses nothing, so it adds them once
    RankRun run(comm, subject);
    run.strategy().load(run.ctx(), saved);
    const std::vector<double> kept = total(saved);
    run.step(1, {1, 1});
    const Floats first = run.values()[2], own = own_of(0, 1, parameters()[2]).values;
    for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(first[i], static_cast<double>(own[i]) + kept[i], 1e-5);
    run.step(1, {1, 1});
    EXPECT_EQ(run.values()[2], own);
  });
}

TEST(FeedbackStrategy, WithoutFeedbackACheckpointWithResidualsIsRefused) {
  make_group(2)->run([](Communicator& comm) {
    RankRun with(comm, Case{"top_k", "{keep: 0.1}"}.subject()),
        without(comm, Case{"top_k", "{feedback: false}"}.subject());
    with.step(0, {0, 1});
    const std::vector<StateDict> states = with.gather_states();
    EXPECT_THAT(user_error([&] { without.strategy().load(without.ctx(), states); }),
                Names("residual", ".push", "sync.check.feedback", "feedback: true"));
    EXPECT_TRUE(without.strategy().state().empty());
    comm.barrier();
  });
}

// Returns what `give` makes of the vector that it should compress.
class Misshapen final : public FeedbackStrategy {
 public:
  using Give = std::function<Tensor(Context& ctx, const Tensor& v)>;
  Misshapen(const SyncEnv& env, Give give) : FeedbackStrategy({}, env), give_(std::move(give)) {}

 protected:
  Tensor exchange(Context& ctx, const Block&, Tensor v) override { return give_(ctx, v); }

 private:
  Give give_;
};

TEST(FeedbackStrategy, AResultOfAWrongFormIsRefused) {
  const auto refused = [](const Misshapen::Give& give) {
    std::string text;
    make_group(2)->run([&](Communicator& comm) {
      Context ctx = rank_context(comm);
      Misshapen strategy(SyncEnv{"all", {{"w", {2, 3}, {}, false}}, ctx.rank, 2, RandomKey(3)}, give);
      std::vector<Var> unit{Var(ctx.zeros({2, 3}), true, "w")};
      unit[0].grad().dense = ctx.zeros({2, 3});
      const std::string error = user_error([&] { strategy.reduce(ctx, unit); });
      if (ctx.rank == 0) text = error;
    });
    return text;
  };
  EXPECT_EQ(refused([](Context&, const Tensor& v) { return v.clone(); }), "no error");
  EXPECT_EQ(refused([](Context& ctx, const Tensor&) { return ctx.zeros({2, 3}); }), "no error");
  for (const int64_t size : {5, 12})
    EXPECT_THAT(refused([&](Context& ctx, const Tensor&) { return ctx.zeros({size}); }),
                Names("exchange() of w returns", str("(", size, ")"), "expected f32 (6)"));
  EXPECT_THAT(refused([](Context& ctx, const Tensor&) { return ctx.zeros({6}, DType::f64); }), Names("f64", "(6)"));
  EXPECT_THAT(refused([](Context&, const Tensor&) { return Tensor(); }), Names("returns no tensor"));
}

TEST(Directions, ClippingALossScaleAndStatesAreRefused) {
  make_group(1);  // adds the plugins' folders
  const std::vector<ParameterSpec> params{{"gate", {4, 2}, {}, false}, {"bias", {4}, {}, false}};
  const auto refused = [&](const std::string& strategy, const std::string& clip, bool loss_scaled,
                           const std::string& optimizer = "{name: sgd, lr: 1}") {
    const Node rules = parse_yaml(
        str("all: {params: 'bias', strategy: ", strategy, "}\nrest: {params: '.*', strategy: allreduce}"), "r.yaml");
    const auto exchanger = make_exchanger(rules, "sync", SyncEnv{"", params, 0, 2, RandomKey(3)});
    return user_error([&] {
      exchanger->check_directions(read_clip(parse_yaml(clip, "c.yaml"), "clip"), loss_scaled,
                                  *make_optimizer(parse_yaml(optimizer, "o.yaml"), "optimizer", params));
    });
  };
  EXPECT_THAT(refused("sign_majority", "1.0", false),
              Names("[sync] sync.all", "direction", "clipping 'bias'", "clip: 0"));
  EXPECT_EQ(refused("sign_majority", "[{params: gate, norm: 1}]", false), "no error");
  EXPECT_EQ(refused("sign_majority", "[{params: bias, norm: 0}, {params: '.*', norm: 1}]", false), "no error");
  EXPECT_THAT(refused("sign_majority", "0", true), Names("[sync] sync.all", "loss scale", "bf16"));
  EXPECT_EQ(refused("top_k", "1.0", true), "no error");
  EXPECT_EQ(refused("sign_majority", "0", false, "{name: adamw}"), "no error");
  EXPECT_EQ(refused("one_bit_adam", "0", false), "no error");
  EXPECT_THAT(refused("one_bit_adam", "1.0", false), Names("[sync] sync.all", "direction", "clip: 0"));
  EXPECT_THAT(refused("one_bit_adam", "0", true), Names("[sync] sync.all", "loss scale", "bf16"));
  for (const char* optimizer : {"{name: adamw}", "{name: sgd, lr: 1, momentum: 0.9}", "{name: lamb}",
                                "{one: {params: bias, name: lion}, rest: {params: '.*', name: sgd}}"})
    EXPECT_THAT(refused("one_bit_adam", "0", false, optimizer),
                Names("[sync] sync.all", "optimizer of 'bias'", "optimizer=sgd"));
  EXPECT_EQ(refused("one_bit_adam", "0", false, "{one: {params: gate, name: adamw}, rest: {params: '.*', name: sgd}}"),
            "no error");
}

struct Directions {
  const char *name, *config;
  int steps;  // the last one has the infinite entry
};
class DirectionsOf : public testing::TestWithParam<Directions> {};
INSTANTIATE_TEST_SUITE_P(All, DirectionsOf,
                         testing::Values(Directions{"sign_majority", "{}", 1},
                                         Directions{"one_bit_adam", "{freeze: 100}", 2},
                                         Directions{"one_bit_adam", "{freeze: 1}", 2}));

TEST_P(DirectionsOf, AnInfiniteEntryOfOneRankIsSeenByAll) {
  make_group(3)->run([](Communicator& comm) {
    Context ctx = comm::rank_context(comm);
    const SyncEnv env{"all", {{"w", {3}, {}, false}}, ctx.rank, 3, RandomKey(3)};
    const Case c{GetParam().name, GetParam().config};
    const Subject subject = c.subject();
    const auto rule = create<SyncFactory>(subject.plugin, subject.config, "sync.all", env);
    Var w(ctx.zeros({3}), true, "w");
    for (int step = 1; step <= GetParam().steps; ++step) {
      const bool last = step == GetParam().steps;
      const Floats own{1, last && ctx.rank == 1 ? INFINITY : -1.0f, -1};
      w.grad().dense = Tensor::from<float>(ctx.allocator, {3}, own);
      rule->strategy()->reduce(ctx, std::span(&w, 1));
      const auto found = w.grad().dense.values<float>();
      EXPECT_EQ(std::all_of(found.begin(), found.end(), [](float v) { return std::isfinite(v); }), !last);
      rule->after_step(ctx);
    }
  });
}

}  // namespace
}  // namespace lmx::sync_test
