// Strategies whose ranks have their own values, against plain loops over all ranks; and their bytes.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "conformance/sync.h"
#include "lmx/replica_strategy.h"
#include "sync/group.h"
#include "test.h"
#include "train/replicas.h"

namespace lmx::sync_test {
namespace {

using Doubles = std::vector<double>;

constexpr int kRanks = 3, kRounds = 5;
constexpr int64_t kMatrix = 12, kVector = 5, kSize = kMatrix + kVector;

const std::vector<ParameterSpec> kSpecs{{"matrix", {4, 3}, {"normal", 1}}, {"vector", {5}, {"normal", 1}}};

// The change of a value of a rank by the steps before an exchange.
double change(int round, int rank, int64_t i) {
  return RandomKey(9)
      .fold(static_cast<uint64_t>(round))
      .fold(static_cast<uint64_t>(rank))
      .normal(static_cast<uint64_t>(i));
}

std::unique_ptr<SyncRule> make_rule(const std::string& config, int rank, int ranks) {
  const Node node = parse_yaml(config, "rule");
  const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, node, "sync.all");
  return create<SyncFactory>(plugin, node, "sync.all", SyncEnv{"all", kSpecs, rank, ranks, RandomKey(1)});
}

// The values of a rank after each of its steps, and what it has sent in it.
struct Trace {
  std::vector<Doubles> own;
  std::vector<int64_t> sent;
};

Doubles values_of(const ParameterStore& params) {
  Doubles all;
  for (const std::string& name : params.names())
    for (const float v : std::as_const(params.at(name).value()).values<float>()) all.push_back(static_cast<double>(v));
  return all;
}

void add_change(ParameterStore& params, int round, int rank) {
  int64_t i = 0;
  for (const std::string& name : params.names()) {
    for (float& v : params.at(name).value().values<float>()) v += static_cast<float>(change(round, rank, i++));
    params.at(name).changed();
  }
}

// Each step changes the values of each rank by change(step, rank).
std::vector<Trace> run(const std::string& config, int ranks, int steps) {
  std::vector<Trace> traces(static_cast<size_t>(ranks));
  make_group(ranks)->run([&](Communicator& comm) {
    Context ctx = comm::rank_context(comm);
    const auto anchors = comm.once<std::shared_ptr<ParameterStore>>([&] {
      auto all = std::make_shared<ParameterStore>();
      for (const ParameterSpec& spec : kSpecs) all->add(ctx, spec, RandomKey(4));
      return all;
    });
    ParameterStore own = anchors->copy(ctx);
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, parse_yaml(config, "rule"), "sync.all");
    const BoundRule rule{"all", kSpecs, &plugin, make_rule(config, ctx.rank, ranks)};
    Replicas replicas({&rule}, *anchors, own, nullptr, true);
    Trace& trace = traces[static_cast<size_t>(ctx.rank)];
    trace.own.push_back(values_of(own));
    for (int step = 1; step <= steps; ++step) {
      add_change(own, step, ctx.rank);
      comm.clear_ledger();
      replicas.after_step(ctx, step, steps);
      trace.own.push_back(values_of(own));
      int64_t sent = 0;
      for (const LedgerEntry& e : comm.ledger()) sent += e.sent;
      trace.sent.push_back(sent);
    }
  });
  return traces;
}

struct Outer {
  int every = 1, delay = 0;
  double lr = 0.7, momentum = 0.9, mix = 0;
  bool nesterov = true;
  std::string yaml() const {
    return str("{name: diloco, every: ", every, ", delay: ", delay, ", outer_lr: ", lr, ", outer_momentum: ", momentum,
               ", mix: ", mix, ", outer_nesterov: ", nesterov ? "true" : "false", "}");
  }
};

// Douillard et al. 2023, algorithm 1, in double precision; with a delay, Douillard et al. 2025, section 3.
std::vector<Doubles> expected(const Outer& c, const Doubles& start, int steps, int of_rank) {
  Doubles anchor = start, m(start.size()), mean(start.size());
  std::vector<Doubles> own(kRanks, start), trace{start};
  int merge_at = 0;
  for (int step = 1; step <= steps; ++step) {
    for (int r = 0; r < kRanks; ++r)
      for (size_t i = 0; i < start.size(); ++i)
        own[static_cast<size_t>(r)][i] +=
            static_cast<double>(static_cast<float>(change(step, r, static_cast<int64_t>(i))));
    if (step % c.every == 0) {
      merge_at = step + c.delay;
      for (size_t i = 0; i < start.size(); ++i) {
        mean[i] = 0;
        for (const Doubles& p : own) mean[i] += (anchor[i] - p[i]) / kRanks;
      }
    }
    if (merge_at > 0 && (step == merge_at || step == steps)) {
      merge_at = 0;
      for (size_t i = 0; i < start.size(); ++i) {
        m[i] = c.momentum * m[i] + mean[i];
        anchor[i] -= c.lr * (c.nesterov ? mean[i] + c.momentum * m[i] : m[i]);
        for (Doubles& p : own) p[i] = c.mix * p[i] + (1 - c.mix) * anchor[i];
      }
    }
    trace.push_back(own[static_cast<size_t>(of_rank)]);
  }
  return trace;
}

class OuterSteps : public testing::TestWithParam<Outer> {};

TEST_P(OuterSteps, FollowTheFormulaAndSendTheirBytes) {
  const Outer& c = GetParam();
  const int steps = c.every * kRounds + 1;
  const std::vector<Trace> traces = run(c.yaml(), kRanks, steps);
  for (int r = 0; r < kRanks; ++r) {
    const Trace& got = traces[static_cast<size_t>(r)];
    const std::vector<Doubles> wanted = expected(c, got.own[0], steps, r);
    for (size_t step = 0; step < wanted.size(); ++step)
      for (size_t i = 0; i < wanted[step].size(); ++i)
        ASSERT_NEAR(got.own[step][i], wanted[step][i], 1e-5 * (1 + std::abs(wanted[step][i]))) << "step " << step;
    int64_t all = 0;
    for (int step = 1; step <= steps; ++step) {
      const int64_t sent = got.sent[static_cast<size_t>(step - 1)];
      EXPECT_TRUE(sent == 0 || step % c.every == 0) << "step " << step;
      all += sent;
    }
    const int64_t chunk = chunk_begin(kSize, r + 1, kRanks) - chunk_begin(kSize, r, kRanks);
    EXPECT_EQ(all, (steps / c.every) * 4 * (kSize - chunk + (kRanks - 1) * chunk));
  }
}
INSTANTIATE_TEST_SUITE_P(All, OuterSteps,
                         testing::Values(Outer{}, Outer{.every = 3},
                                         Outer{.every = 2, .momentum = 0.5, .nesterov = false},
                                         Outer{.every = 4, .delay = 2, .lr = 0.4, .mix = 0.5},
                                         Outer{.every = 3, .delay = 1, .momentum = 0}));

// Values and changes are multiples of 1/64, so that no operation rounds: an outer rate of 1 without momentum is the
// mean of the ranks' values.
TEST(OuterSteps, ARateOfOneIsTheMeanOfTheRanks) {
  constexpr int kFour = 4;
  std::vector<Doubles> own(kFour);
  make_group(kFour)->run([&](Communicator& comm) {
    Context ctx = comm::rank_context(comm);
    const auto rule = make_rule("{name: diloco, every: 1, outer_lr: 1, outer_momentum: 0}", ctx.rank, kFour);
    Fragment f{.size = kSize, .own = ctx.empty({kSize}), .anchor = ctx.empty({kSize})};
    for (int64_t i = 0; i < kSize; ++i) {
      f.anchor.values<float>()[static_cast<size_t>(i)] = static_cast<float>(i) / 64;
      f.own.values<float>()[static_cast<size_t>(i)] = static_cast<float>(i * (ctx.rank + 2) - 7) / 64;
    }
    const Tensor sum = rule->replica()->exchange(ctx, f);
    const Tensor merged = rule->replica()->merge(ctx, f, sum).own;
    for (const float v : merged.values<float>()) own[static_cast<size_t>(ctx.rank)].push_back(static_cast<double>(v));
  });
  for (const Doubles& values : own)
    for (int64_t i = 0; i < kSize; ++i)
      ASSERT_EQ(values[static_cast<size_t>(i)], (3.5 * static_cast<double>(i) - 7) / 64) << i;
}

TEST(LocalSgd, EveryRankContinuesFromTheMean) {
  const std::vector<Trace> traces = run("{name: local_sgd, every: 2}", kRanks, 4);
  for (size_t i = 0; i < static_cast<size_t>(kSize); ++i) {
    double mean = 0;
    for (int r = 0; r < kRanks; ++r)
      for (const int round : {1, 2, 3, 4}) mean += change(round, r, static_cast<int64_t>(i)) / kRanks;
    for (const Trace& t : traces) {
      EXPECT_NEAR(t.own[4][i], t.own[0][i] + mean, 1e-5);
      EXPECT_EQ(t.own[4][i], traces[0].own[4][i]);
      EXPECT_NE(t.own[3][i], t.own[2][i]);
    }
  }
  const Trace alone = run("{name: local_sgd, every: 1}", 1, 3)[0];
  EXPECT_EQ(alone.sent, std::vector<int64_t>(3));
}

// Sarfi et al. 2025, algorithm 1, in double precision, with an exchange after each step: e = decay e + change; the two
// largest of each 6 elements of e are sent, in the four levels of the statistical quantiser.
struct SparseSteps {
  double decay = 0.95, lr = 1;
  bool senders = true;

  // Mean and standard deviation; four intervals of 1.5 deviations, and the mean of the values in each.
  static Doubles quantised(const Doubles& v) {
    double mean = 0, squares = 0;
    for (const double x : v) mean += x / static_cast<double>(v.size());
    for (const double x : v) squares += (x - mean) * (x - mean);
    const double width = 1.5 * std::sqrt(squares / static_cast<double>(v.size()));
    const auto code = [&](double x) {
      return static_cast<size_t>(std::clamp(std::round((x - mean) / width + 2), 0.0, 3.0));
    };
    Doubles sums(4), counts(4), out;
    for (const double x : v) sums[code(x)] += x, ++counts[code(x)];
    for (const double x : v) out.push_back(sums[code(x)] / counts[code(x)]);
    return out;
  }

  static std::vector<size_t> sent(const Doubles& e) {
    std::vector<size_t> ids;
    for (size_t begin = 0; begin < e.size(); begin += 6) {
      std::vector<size_t> chunk;
      for (size_t i = begin; i < std::min(e.size(), begin + 6); ++i) chunk.push_back(i);
      std::stable_sort(chunk.begin(), chunk.end(), [&](size_t a, size_t b) { return std::abs(e[a]) > std::abs(e[b]); });
      ids.insert(ids.end(), chunk.begin(), chunk.begin() + 2);
    }
    return ids;
  }

  std::vector<Doubles> expected(const Doubles& start, int ranks, int steps) const {
    Doubles anchor = start;
    std::vector<Doubles> residual(static_cast<size_t>(ranks), Doubles(start.size())), trace{start};
    for (int step = 1; step <= steps; ++step) {
      Doubles sum(start.size()), count(start.size());
      for (int r = 0; r < ranks; ++r) {
        Doubles &e = residual[static_cast<size_t>(r)], values;
        for (size_t i = 0; i < e.size(); ++i)
          e[i] = decay * e[i] + static_cast<double>(static_cast<float>(change(step, r, static_cast<int64_t>(i))));
        const std::vector<size_t> ids = sent(e);
        for (const size_t i : ids) values.push_back(e[i]);
        values = quantised(values);
        for (size_t k = 0; k < ids.size(); ++k) {
          sum[ids[k]] += values[k];
          ++count[ids[k]];
          e[ids[k]] -= values[k];
        }
      }
      for (size_t i = 0; i < anchor.size(); ++i)
        if (count[i] > 0) anchor[i] += lr * sum[i] / (senders ? count[i] : ranks);
      trace.push_back(anchor);
    }
    return trace;
  }
};

TEST(SparseLoco, FollowsTheFormulaAndSendsItsBytes) {
  constexpr int kMany = 20, kFour = 4;
  for (const SparseSteps& c : {SparseSteps{}, SparseSteps{0.5, 0.8, false}}) {
    const std::vector<Trace> traces = run(str("{name: sparse_loco, every: 1, top: 2, chunk: 6, decay: ", c.decay,
                                              ", outer_lr: ", c.lr, ", mean: ", c.senders ? "senders" : "ranks", "}"),
                                          kFour, kMany);
    const std::vector<Doubles> wanted = c.expected(traces[0].own[0], kFour, kMany);
    for (const Trace& got : traces)
      for (size_t step = 0; step < wanted.size(); ++step) {
        for (size_t i = 0; i < wanted[step].size(); ++i)
          ASSERT_NEAR(got.own[step][i], wanted[step][i], 1e-5 * (1 + std::abs(wanted[step][i]))) << "step " << step;
        // Six ids of 3 bits, four means, and six values of 2 bits.
        if (step > 0) {
          EXPECT_EQ(got.sent[step - 1], (kFour - 1) * (3 + 4 * 4 + 2));
        }
      }
  }
}

// Two ranks divide the tensors that four ranks keep for a fragment; four ranks load them unchanged.
TEST(Replicas, AnotherNumberOfRanksSharesWhatIsKept) {
  std::vector<StateDict> saved(4);
  for (size_t r = 0; r < 4; ++r) {
    const std::vector<float> own(static_cast<size_t>(kSize), static_cast<float>(r));
    saved[r].emplace("@kept/all/0", Tensor::from<float>(Allocator::cpu(), {kSize}, own));
  }
  for (const int ranks : {2, 4})
    make_group(ranks)->run([&](Communicator& comm) {
      Context ctx = comm::rank_context(comm);
      ParameterStore anchors;
      for (const ParameterSpec& spec : kSpecs) anchors.add(ctx, spec, RandomKey(4));
      const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, "sparse_loco");
      const BoundRule rule{"all", kSpecs, &plugin, make_rule("name: sparse_loco", ctx.rank, ranks)};
      Replicas replicas({&rule}, anchors, anchors.copy(ctx),
                        make_optimizer(parse_yaml("name: sgd", "optimizer"), "optimizer"), true);
      replicas.load(ctx, saved);
      EXPECT_THAT(std::as_const(replicas.state().at("@kept/all/0")).values<float>(),
                  testing::Each(ranks == 4 ? static_cast<float>(ctx.rank) : 3.0f));
    });
}

// A single rank adds the residual of the ranks before it once, and sends nothing.
TEST(SparseLoco, ASingleRankAddsTheResidualOnce) {
  make_group(1)->run([&](Communicator& comm) {
    Context ctx = comm::rank_context(comm);
    const auto rule = make_rule("{name: sparse_loco, every: 1, top: 2, chunk: 6}", 0, 1);
    const std::vector<float> twelve(static_cast<size_t>(kSize), 12);
    Fragment f{.size = kSize,
               .own = ctx.zeros({kSize}),
               .anchor = ctx.zeros({kSize}),
               .kept = Tensor::from<float>(ctx.allocator, {kSize}, twelve)};
    const Tensor sum = rule->replica()->exchange(ctx, f);
    EXPECT_THAT(sum.values<float>(), testing::Each(12));
    EXPECT_FALSE(f.kept.defined());
    EXPECT_TRUE(comm.ledger().empty());
  });
}

// Kolehmainen et al. 2025, in double precision, with an exchange after each step. The pairs are 2 i and 2 i + 1 of a
// random order; with an odd number of ranks one of them is alone.
struct PairSteps {
  double momentum = 0.5, lr = 0.7, pull = 1;

  static std::vector<int> others(int ranks, int round) {
    std::vector<int> other(static_cast<size_t>(ranks));
    const RandomKey key = RandomKey(1).fold(static_cast<uint64_t>(round));
    const auto at = [&](int i) {
      return static_cast<int>(permute(key, static_cast<uint64_t>(i), static_cast<uint64_t>(ranks)));
    };
    for (int i = 0; i < ranks; ++i) other[static_cast<size_t>(at(i))] = (i ^ 1) < ranks ? at(i ^ 1) : at(i);
    return other;
  }

  std::vector<std::vector<Doubles>> expected(const Doubles& start, int ranks, int steps) const {
    const auto n = static_cast<size_t>(ranks);
    std::vector<Doubles> anchor(n, start), step_of(n, Doubles(start.size()));
    std::vector<std::vector<Doubles>> trace{anchor};
    for (int step = 1; step <= steps; ++step) {
      const std::vector<int> other = others(ranks, step - 1);
      const std::vector<Doubles> before = anchor;
      for (size_t r = 0; r < n; ++r) {
        const auto o = static_cast<size_t>(other[r]);
        for (size_t i = 0; i < start.size(); ++i) {
          const auto changed = [&](size_t rank) {
            return static_cast<double>(
                static_cast<float>(change(step, static_cast<int>(rank), static_cast<int64_t>(i))));
          };
          double& d = step_of[r][i];
          d = momentum * d + lr * (changed(r) + changed(o)) / 2 -
              pull * (before[r][i] - (before[r][i] + before[o][i]) / 2);
          anchor[r][i] = before[r][i] + d;
        }
      }
      trace.push_back(anchor);
    }
    return trace;
  }
};

TEST(Noloco, FollowsTheFormulaAndSendsItsBytes) {
  constexpr int kMany = 12;
  for (const PairSteps& c : {PairSteps{}, PairSteps{0.9, 0.4, 0.6}})
    for (const int ranks : {1, 2, 4, 5}) {
      const std::vector<Trace> traces =
          run(str("{name: noloco, every: 1, momentum: ", c.momentum, ", outer_lr: ", c.lr, ", pull: ", c.pull, "}"),
              ranks, kMany);
      const auto wanted = c.expected(traces[0].own[0], ranks, kMany);
      for (size_t r = 0; r < traces.size(); ++r)
        for (size_t step = 0; step < wanted.size(); ++step) {
          for (size_t i = 0; i < wanted[step][r].size(); ++i)
            ASSERT_NEAR(traces[r].own[step][i], wanted[step][r][i], 1e-5 * (1 + std::abs(wanted[step][r][i])))
                << ranks << " ranks, step " << step;
          if (step == 0) continue;
          const bool alone = PairSteps::others(ranks, static_cast<int>(step) - 1)[r] == static_cast<int>(r);
          EXPECT_EQ(traces[r].sent[step - 1], alone ? 0 : 2 * 4 * kSize);
        }
    }
}

// Over some rounds each rank meets each other one.
TEST(Noloco, PairsAreRandom) {
  std::set<std::pair<int, int>> met;
  for (int round = 0; round < 40; ++round)
    for (int r = 0; r < 5; ++r) met.emplace(r, PairSteps::others(5, round)[static_cast<size_t>(r)]);
  EXPECT_EQ(met.size(), 25u);
}

TEST(SparseLoco, WrongSettingsAreRefused) {
  make_group(1);  // finds the plugins
  const auto refused = [](const std::string& config) { return lmx_test::user_error([&] { make_rule(config, 0, 2); }); };
  EXPECT_THAT(refused("{name: sparse_loco, top: 65, chunk: 64}"), lmx_test::Names("sync.all.top: 65", "chunk of 64"));
  EXPECT_THAT(refused("{name: sparse_loco, codec: {feedback: 0.5}}"), lmx_test::Names("sync.all.codec", "feedback: 0"));
  EXPECT_EQ(refused("{name: sparse_loco, codec: {kind: fp16}}"), "no error");
}

// Parts of about equal size, each exchanged once in every period, at equal distances.
TEST(OuterSteps, FragmentsCoverTheParametersAndAlternate) {
  const std::vector<Trace> traces = run("{name: diloco, every: 4, fragments: 2}", 2, 12);  // finds the plugins
  const auto rule = make_rule("{name: diloco, every: 10, fragments: 2}", 0, 2);
  const std::vector<std::vector<std::string>> parts{{"matrix"}, {"vector"}};
  EXPECT_EQ(rule->replica()->fragments(), parts);
  EXPECT_EQ(rule->replica()->rhythm(0).offset, 0);
  EXPECT_EQ(rule->replica()->rhythm(1).offset, 5);
  const std::vector<int64_t> matrix{4, 8, 12}, vector{6, 10};
  for (int64_t step = 1; step <= 12; ++step) {
    const bool first = std::find(matrix.begin(), matrix.end(), step) != matrix.end();
    const bool second = std::find(vector.begin(), vector.end(), step) != vector.end();
    const int64_t elements = first ? kMatrix : second ? kVector : 0;
    EXPECT_EQ(traces[0].sent[static_cast<size_t>(step - 1)] + traces[1].sent[static_cast<size_t>(step - 1)],
              2 * 4 * elements)
        << "step " << step;
  }
}

}  // namespace
}  // namespace lmx::sync_test
