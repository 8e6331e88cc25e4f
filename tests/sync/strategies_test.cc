// Requirements for single strategies beyond the conformance suite.
#include "lmx/error.h"
#include "sync/group.h"
#include "sync/shipped_strategies.h"
#include "test.h"

namespace lmx::sync_test {
namespace {

using namespace lmx_test;
using testing::Contains;

std::unique_ptr<SyncRule> strategy(const std::string& yaml, int rank = 0, int ranks = 1,
                                   std::vector<ParameterSpec> params = parameters()) {
  make_group(1);  // adds the plugins' folders
  const Node config = parse_yaml(yaml, "r.yaml");
  const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, config, "sync.all");
  return create<SyncFactory>(plugin, config, "sync.all", SyncEnv{"all", std::move(params), rank, ranks, RandomKey(3)});
}

std::string refused(const std::string& yaml) {
  make_group(1);
  return user_error([&] { full_component(PluginKind::sync, parse_yaml(yaml, "r.yaml"), "sync.all"); });
}

TEST(Recipe, IllegalPairsAreRefusedWithTheReason) {
  EXPECT_THAT(refused("{name: one_bit, codec: {kind: fp16}}"),
              Names("r.yaml:1", "sync.all.codec.kind", "strategy allreduce"));
  EXPECT_THAT(refused("{name: allgather, codec: {kind: one_bit}}"),
              Names("sync.all.codec.kind", "error feedback", "unique"));
  EXPECT_THAT(refused("{name: allgather_dense, codec: {kind: one_bit}}"),
              Names("sync.all.codec.kind", "strategy one_bit"));
  EXPECT_THAT(refused("{name: unique, gather: some}"), Names("sync.all.gather"));
  EXPECT_THAT(refused("{name: seeded, seeds: log3}"), Names("power_0.64"));
  EXPECT_THAT(refused("{name: allreduce, bucket_mb: -1}"), Names("sync.all.bucket_mb"));
  EXPECT_THAT(refused("{name: allreduce, bukcet_mb: 1}"), Names("'bucket_mb'?"));
  EXPECT_THAT(refused("{name: allreduce, levles: 2}"), Names("'levels'?"));
  EXPECT_THAT(refused("{name: allreduce, levels: 3}"), Names("sync.all.levels"));
  EXPECT_THAT(refused("{name: allreduce, levels: 2, codec: {kind: one_bit}}"),
              Names("sync.all.levels", "residuals", "levels: 1"));
}

TEST(Levels, NodesWithDifferentNumbersOfRanksAreRefused) {
  make_group(1);
  const Node config = parse_yaml("{name: allreduce, levels: 2}", "r.yaml");
  const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, config, "sync.all");
  const auto create_for = [&](int per_node) {
    return create<SyncFactory>(plugin, config, "sync.all", SyncEnv{"all", parameters(), 0, 4, RandomKey(3), per_node});
  };
  EXPECT_EQ(create_for(2)->describe(4), "two levels: 2 nodes of 2 ranks");
  EXPECT_EQ(create_for(4)->describe(4), "two levels, but all ranks are in one node");
  EXPECT_THAT(user_error([&] { create_for(RankNodes(4, 3).per_node()); }),
              Names("[sync.all] levels: 2", "comm.ranks_per_node", "levels: 1"));
}

TEST(Recipe, SettingsThatNothingReadsAreRefused) {
  for (const char* name :
       {"allreduce", "unique", "seeded", "allgather", "allgather_dense", "param_server", "sampled_rows"}) {
    const auto with = [&](const char* codec) { return refused(str("{name: ", name, ", codec: ", codec, "}")); };
    EXPECT_THAT(with("{kind: bf16, scale: 512}"), Names("r.yaml:1", "sync.all.codec.scale: 512", "fp16", "bf16"))
        << name;
    EXPECT_THAT(with("{reduce: fp32}"), Names("sync.all.codec.reduce: fp32", "kind fp16")) << name;
    EXPECT_THAT(with("{kind: fp16, residual: none}"), Names("codec.residual: none", "kind: one_bit")) << name;
    EXPECT_EQ(with("{kind: fp16, scale: 512}"), "no error") << name;
  }
  EXPECT_THAT(refused("{name: one_bit, codec: {kind: one_bit, scale: 512}}"), Names("codec.scale"));
  EXPECT_EQ(refused("{name: one_bit, codec: {kind: one_bit, residual: none}}"), "no error");
  EXPECT_THAT(refused("{name: param_server, codec: {kind: fp16, reduce: fp32}}"),
              Names("sync.all.codec.reduce", "changes nothing"));
}

// If a rule also has dense gradients, these are summed through the codec.
TEST(Recipe, GatheredTablesAreAddedInFp32WhateverTheCodec) {
  const std::vector<ParameterSpec> tables{{"t", {5, 2}, {}, true}};
  std::vector<ParameterSpec> both = tables;
  both.push_back({"w", {5, 2}, {}, false});
  for (const char* name : {"allgather", "allgather_dense"}) {
    const std::string yaml = str("{name: ", name, ", codec: {kind: fp16, reduce: fp32}}");
    EXPECT_NO_THROW(strategy(yaml, 0, 2, both));
    EXPECT_THAT(user_error([&] { strategy(yaml, 0, 2, tables); }), Names("sync.all.codec.reduce", name));
  }
}

TEST(Recipe, DefaultsAreFilledIn) {
  make_group(1);
  const auto full = [](const std::string& yaml) {
    return full_component(PluginKind::sync, parse_yaml(yaml, "r.yaml"), "sync.all");
  };
  EXPECT_EQ(full("name: one_bit").at_path("codec.kind")->text, "one_bit");
  EXPECT_EQ(full("name: allreduce").at_path("codec.kind")->text, "none");
  EXPECT_EQ(full("name: allreduce").at_path("bucket_mb")->text, "150.0");
  EXPECT_EQ(full("name: unique").at_path("gather")->text, "unique");
}

std::vector<std::vector<std::string>> units(const std::string& yaml) {
  const std::vector<ParameterSpec> specs = parameters();
  return strategy(yaml)->strategy()->units({specs.rbegin(), specs.rend()});
}

TEST(Allreduce, BucketsCloseWhenTheyAreFullAndTablesTravelAlone) {
  // In backward's order: softmax_bias, softmax (tables), edge (24 bytes), bias (116), gate (3168), tiny, emb (tables).
  EXPECT_THAT(units("name: allreduce"),
              ElementsAre(ElementsAre("softmax_bias"), ElementsAre("softmax"), ElementsAre("tiny"), ElementsAre("emb"),
                          ElementsAre("edge", "bias", "gate")));
  EXPECT_THAT(units("{name: allreduce, bucket_mb: 0.000140}"),
              ElementsAre(ElementsAre("softmax_bias"), ElementsAre("softmax"), ElementsAre("edge", "bias"),
                          ElementsAre("gate"), ElementsAre("tiny"), ElementsAre("emb")));
  // Sizes as sent: with fp16 12, 58 and 1584 bytes.
  EXPECT_THAT(units("{name: allreduce, bucket_mb: 0.000140, codec: {kind: fp16}}"),
              Contains(ElementsAre("edge", "bias", "gate")));
  EXPECT_THAT(units("{name: allreduce, bucket_mb: 0.000070, codec: {kind: fp16}}"),
              Contains(ElementsAre("edge", "bias")));
  EXPECT_EQ(units("{name: allreduce, bucket_mb: 0}").size(), parameters().size());
  EXPECT_EQ(units("name: unique").size(), parameters().size());
}

// Patwary 2018, section III-B: the numbers of seeds, rounded to the nearest integer, at least 1.
TEST(Seeded, NumbersOfSeeds) {
  struct Row {
    int ranks, log2, ln, log10, power;
  };
  for (const Row& row : {Row{8, 3, 2, 1, 4},
                         {16, 4, 3, 1, 6},
                         {24, 5, 3, 1, 8},
                         {32, 5, 3, 2, 9},
                         {64, 6, 4, 2, 14},
                         {128, 7, 5, 2, 22},
                         {192, 8, 5, 2, 29}}) {
    const auto seeds = [&](const std::string& kind) {
      return std::stoi(strategy("{name: seeded, seeds: " + kind + "}")->describe(row.ranks));
    };
    EXPECT_EQ(seeds("all"), row.ranks);
    EXPECT_EQ(seeds("log2"), row.log2) << row.ranks;
    EXPECT_EQ(seeds("ln"), row.ln) << row.ranks;
    EXPECT_EQ(seeds("log10"), row.log10) << row.ranks;
    EXPECT_EQ(seeds("power_0.64"), row.power) << row.ranks;
    EXPECT_EQ(seeds("one"), 1);
  }
  EXPECT_EQ(std::stoi(strategy("{name: seeded, seeds: log10, rounding: floor}")->describe(8)), 1);
  EXPECT_EQ(std::stoi(strategy("{name: seeded, seeds: ln, rounding: floor}")->describe(24)), 3);
  EXPECT_EQ(std::stoi(strategy("{name: seeded, seeds: ln, rounding: ceil}")->describe(24)), 4);
}

TEST(Seeded, PrintsItsGroups) {
  EXPECT_EQ(strategy("name: seeded")->describe(8),
            "4 seeds for 8 ranks (power_0.64, nearest, block): 0-1, 2-3, 4-5, 6-7");
  EXPECT_EQ(strategy("{name: seeded, seeds: log2, placement: round_robin}")->describe(8),
            "3 seeds for 8 ranks (log2, nearest, round_robin): 0+3..6, 1+3..7, 2+3..5");
  EXPECT_EQ(strategy("{name: seeded, seeds: all}")->describe(2), "2 seeds for 2 ranks (all, nearest, block): 0, 1");
  EXPECT_EQ(strategy("name: unique")->describe(8), "");
}

// The sampling keys of `ranks` ranks in a step.
std::vector<uint64_t> keys(const std::string& yaml, int ranks, int64_t step) {
  std::vector<uint64_t> keys;
  for (int r = 0; r < ranks; ++r) {
    Context ctx;
    ctx.rank = r;
    ctx.ranks = ranks;
    StepPlan plan;
    plan.step = step;
    strategy(yaml, r, ranks)->begin_step(ctx, {}, plan);
    keys.push_back(plan.sampler_key.value());
  }
  return keys;
}

std::map<uint64_t, int> members(const std::vector<uint64_t>& keys) {
  std::map<uint64_t, int> sizes;
  for (const uint64_t k : keys) ++sizes[k];
  return sizes;
}

TEST(Seeded, RanksOfAGroupShareAKey) {
  const std::vector<uint64_t> block = keys("{name: seeded, seeds: log2}", 8, 5);
  for (size_t r = 0; r < 8; ++r)
    for (size_t q = 0; q < 8; ++q) EXPECT_EQ(block[r] == block[q], r * 3 / 8 == q * 3 / 8) << r << q;
  const std::vector<uint64_t> robin = keys("{name: seeded, seeds: log2, placement: round_robin}", 8, 5);
  for (size_t r = 0; r < 8; ++r)
    for (size_t q = 0; q < 8; ++q) EXPECT_EQ(robin[r] == robin[q], r % 3 == q % 3) << r << q;
  EXPECT_EQ(members(keys("{name: seeded, seeds: all}", 8, 5)).size(), 8u);
  EXPECT_EQ(members(keys("{name: seeded, seeds: one}", 8, 5)).size(), 1u);
  EXPECT_NE(keys("{name: seeded, seeds: one}", 8, 5), keys("{name: seeded, seeds: one}", 8, 6));
}

TEST(Seeded, RotationMovesRanksBetweenGroups) {
  const std::string yaml = "{name: seeded, seeds: log2, rotation: true}";
  std::set<std::vector<bool>> patterns;
  for (int64_t step = 0; step < 8; ++step) {
    const std::vector<uint64_t> k = keys(yaml, 8, step);
    const auto sizes = members(k);
    EXPECT_EQ(sizes.size(), 3u);
    for (const auto& [key, n] : sizes) EXPECT_TRUE(n == 2 || n == 3);
    std::vector<bool> with_first;
    for (const uint64_t key : k) with_first.push_back(key == k[0]);
    patterns.insert(with_first);
  }
  EXPECT_GT(patterns.size(), 2u);
}

// The optimizer of the modelled system reads the matrices of all ranks, so they exist until the update is done.
TEST(AllgatherDense, KeepsWhatItGatheredUntilTheUpdate) {
  make_group(4)->run([](Communicator& comm) {
    const Subject subject = Case{"allgather_dense", "codec: {kind: none}"}.subject();
    RankRun run(comm, subject);
    int64_t tables = 0;
    for (const ParameterSpec& p : parameters()) tables += p.sparse ? p.shape.numel() * 4 : 0;
    const auto held = [&] { return comm.allocator()->stats().current[static_cast<size_t>(MemClass::communication)]; };
    run.reduce(0);
    const int64_t before = held();
    run.after_step();
    EXPECT_GE(before - held(), 4 * tables);
    EXPECT_LT(before - held(), 5 * tables);  // blocks have size classes
  });
}

TEST(Unique, GradientsInDoubleForChecks) {
  make_group(3)->run([](Communicator& comm) {
    for (const char* name : {"unique", "allgather", "allreduce", "allgather_dense"}) {
      Context ctx = rank_context(comm);
      const auto s = strategy(str("name: ", name), ctx.rank, ctx.ranks, {{"t", {5, 2}, {}, true}});
      std::vector<Var> unit{Var(ctx.zeros({5, 2}, DType::f64), true, "t")};
      const std::vector<double> row{1.0 / 3, 2.0 / 3};
      unit[0].grad().pieces.push_back({{ctx.rank}, Tensor::from<double>(ctx.allocator, {1, 2}, row), false});
      s->strategy()->reduce(ctx, unit);
      const Gradient& g = unit[0].grad();
      const Tensor& sum = g.sparse() ? g.pieces[0].rows : g.dense;
      EXPECT_EQ(sum.dim(0), g.sparse() ? 3 : 5);
      EXPECT_EQ(sum.data<double>()[4], 1.0 / 3) << name;
    }
  });
}

// A parameter that is declared dense but has a row-sparse gradient, and a table whose gradient is dense.
TEST(Allreduce, TakesGradientsAsTheyCome) {
  make_group(2)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    const auto s = strategy("name: allreduce", ctx.rank, 2, {{"d", {3, 2}, {}, false}, {"t", {3, 2}, {}, true}});
    const std::vector<float> ones(6, 1.0f);
    std::vector<Var> dense{Var(ctx.zeros({3, 2}), true, "d")}, table{Var(ctx.zeros({3, 2}), true, "t")};
    dense[0].grad().pieces.push_back(
        {{2, 2}, Tensor::from<float>(ctx.allocator, {2, 2}, std::span(ones).first(4)), false});
    s->strategy()->reduce(ctx, dense);
    EXPECT_THAT(dense[0].grad().dense.values<float>(), ElementsAre(0, 0, 0, 0, 4, 4));
    if (ctx.rank == 0) table[0].grad().dense = Tensor::from<float>(ctx.allocator, {3, 2}, ones);
    if (ctx.rank == 1)
      table[0].grad().pieces.push_back(
          {{1}, Tensor::from<float>(ctx.allocator, {1, 2}, std::span(ones).first(2)), false});
    s->strategy()->reduce(ctx, table);
    EXPECT_THAT(table[0].grad().pieces[0].indices, ElementsAre(0, 1, 2));
    EXPECT_THAT(table[0].grad().pieces[0].rows.values<float>(), ElementsAre(1, 1, 2, 2, 1, 1));
  });
}

TEST(Strategies, ACheckpointWithResidualsNeedsACodecThatHasThem) {
  make_group(2)->run([](Communicator& comm) {
    const Subject one_bit = Case{"one_bit", "{}"}.subject(), other_codec = Case{"allreduce", "{}"}.subject();
    RankRun run(comm, one_bit);
    run.reduce(0);
    const std::vector<StateDict> states = run.gather_states();
    RankRun other(comm, other_codec);
    EXPECT_THAT(user_error([&] { other.strategy().load(other.ctx(), states); }), Names("residual", ".push"));
    comm.barrier();
  });
}

}  // namespace
}  // namespace lmx::sync_test
