// The sum over virtual ranks through a codec.
#include <malloc.h>

#include <cmath>
#include <cstring>

#include "comm/partition.h"
#include "comm/sent_bytes.h"
#include "lmx/codec.h"
#include "lmx/random.h"
#include "lmx/row_sync.h"
#include "same_tensors.h"
#include "sync/group.h"
#include "test.h"
#include "vector_of.h"

namespace lmx {
namespace {

using namespace lmx_test;

using sync_test::make_group;
using sync_test::rank_context;

Tensor draw(Context& ctx, Shape shape, uint64_t seed) {
  const RandomKey key = RandomKey(seed).fold(static_cast<uint64_t>(ctx.rank));
  Tensor t = ctx.empty(shape, DType::f32, MemClass::gradients);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(key.normal(static_cast<uint64_t>(i)));
  return t;
}

// Every rank has all the rows.
Tensor reduce_all(Reducer& reducer, Context& ctx, const Tensor& rows, const std::vector<int32_t>& index) {
  return reducer.reduce_rows(ctx, "t", {index, rows, true}, index, nullptr);
}

// A rank has some of the rows of `index`, and sends the others the indices of its rows.
Tensor reduce_some(Reducer& reducer, Context& ctx, const RowSparse& own, const std::vector<int32_t>& index) {
  const GatheredIndices gathered = gather_indices(ctx, own.indices, "g");
  return reducer.reduce_rows(ctx, "t", own, index, &gathered);
}

TEST(Reducer, WithoutACodecItIsAllReduce) {
  make_group(3)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer reducer({}, "g");
    const Tensor own = draw(ctx, {7, 5}, 1);
    const Tensor sum = reducer.reduce(ctx, "w", own);
    EXPECT_EQ(vector_of<float>(sum), vector_of<float>(comm.all_reduce(own, "g")));
    EXPECT_EQ(sum.shape(), own.shape());
    EXPECT_TRUE(reducer.take_health().empty());
    const Tensor wide = own.to(DType::f64);
    EXPECT_EQ(reducer.reduce(ctx, "w", wide).dtype(), DType::f64);
  });
}

int64_t kilobytes(const std::string& key) {  // "VmHWM:"
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t value = 0;
    if (word == key && status >> value) return value;
  }
  return 0;
}

// The increase of the process's resident memory while `ranks` ranks sum.
int64_t kilobytes_of_sums(int ranks) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5 << std::flush;  // the peak starts at the current size
  const int64_t before = kilobytes("VmRSS:");
  EXPECT_LE(kilobytes("VmHWM:"), before + 1024) << "the peak was not reset";
  make_group(ranks)->run([](Communicator& comm) {
    const Tensor own = Tensor::zeros(comm.allocator(), {100}, DType::f32);
    for (int i = 0; i < 2; ++i) comm.all_reduce(own, "g");
  });
  return kilobytes("VmHWM:") - before;
}

// Four times the ranks need about four times the memory; 13 times if each rank kept a tensor for each other rank.
TEST(Reducer, MemoryGrowsWithTheRanksAndNotWithTheirSquare) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory";
#endif
  const int64_t few = kilobytes_of_sums(300), many = kilobytes_of_sums(1200);
  EXPECT_GT(few, 1000);
  EXPECT_LT(many, 8 * few);
}

// Rank 0 adds 2048, and three ranks add 1. fp16 at scale 1 represents all integers only up to 2048.
TEST(Reducer, AddsInThePrecisionOfTheCodec) {
  make_group(4)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    Tensor own = ctx.zeros({9});
    for (float& v : own.values<float>()) v = ctx.rank == 0 ? 2048.0f : 1.0f;
    Reducer fp16({.kind = "fp16", .scale = 1, .reduce = "fp16"}, "g"),
        fp32({.kind = "fp16", .scale = 1, .reduce = "fp32"}, "g");
    EXPECT_THAT(vector_of<float>(fp16.reduce(ctx, "w", own)),
                testing::Each(2048));  // 2048 + 1 rounds to even, three times
    EXPECT_THAT(vector_of<float>(fp32.reduce(ctx, "w", own)), testing::Each(2052));  // 2051, encoded
  });
}

TEST(Reducer, BlocksTravelInOneMessage) {
  for (const char* kind : {"none", "fp16", "one_bit"}) {
    make_group(3)->run([kind](Communicator& comm) {
      Context ctx = rank_context(comm);
      Reducer together({.kind = kind}, "g"), alone({.kind = kind}, "g");
      const std::vector<Reducer::Block> blocks{
          {"a", draw(ctx, {4, 3}, 1)}, {"b", draw(ctx, {5}, 2)}, {"c", draw(ctx, {1, 9}, 3)}};
      comm.clear_ledger();
      const std::vector<Tensor> sums = together.reduce(ctx, blocks);
      EXPECT_EQ(comm.ledger().size(), 2u);
      for (size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_EQ(vector_of<float>(sums[i]), vector_of<float>(alone.reduce(ctx, blocks[i].name, blocks[i].own)))
            << kind << i;
        EXPECT_EQ(sums[i].shape(), blocks[i].own.shape());
      }
    });
  }
}

TEST(Reducer, HealthIsByParameter) {
  make_group(2)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer reducer({.kind = "fp16", .scale = 1}, "g");
    Tensor large = ctx.zeros({4}), small = ctx.zeros({6});
    for (float& v : large.values<float>()) v = 40000;  // within the range of f16, but twice the value is not
    for (float& v : small.values<float>()) v = 1e-9f;
    const std::vector<Reducer::Block> blocks{{"large", large}, {"small", small}};
    const std::vector<Tensor> sums = reducer.reduce(ctx, blocks);
    EXPECT_THAT(vector_of<float>(sums[0]), testing::Each(INFINITY));
    auto health = reducer.take_health();
    EXPECT_EQ(health.at("large").values, 4 + 2);  // own values, and this rank's chunk of the sum
    EXPECT_EQ(health.at("large").overflow, 2);
    EXPECT_EQ(health.at("large").underflow, 0);
    EXPECT_EQ(health.at("small").underflow, 6);
    EXPECT_TRUE(reducer.take_health().empty());
  });
}

// The same gradient in each step: a later step adds the error of an earlier one, so that the mean of the sums converges
// to the true sum.
TEST(Reducer, ErrorFeedbackIsUnbiased) {
  make_group(3)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer reducer({.kind = "one_bit"}, "g"), exact({}, "g");
    const Tensor own = draw(ctx, {12, 5}, 4);
    const std::vector<float> truth = vector_of<float>(exact.reduce(ctx, "w", own));
    std::vector<double> mean(truth.size());
    const int steps = 400;
    for (int s = 0; s < steps; ++s) {
      const Tensor sum = reducer.reduce(ctx, "w", own);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(sum.data<float>()[i]) / steps;
    }
    for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], static_cast<double>(truth[i]), 0.15) << i;
    EXPECT_GT(reducer.take_health().at("w").residual, 0);
  });
}

TEST(Reducer, ATableKeepsResidualsForRowsThatWereSent) {
  make_group(3)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer reducer({.kind = "one_bit"}, "g");
    reduce_all(reducer, ctx, draw(ctx, {4, 2}, 1), {2, 3, 7, 900});
    reduce_all(reducer, ctx, draw(ctx, {2, 2}, 2), {3, 12});
    const StateDict state = reducer.state();
    const auto push = state.at("t.push.rows").values<int32_t>();
    EXPECT_THAT(std::vector<int32_t>(push.begin(), push.end()), ElementsAre(2, 3, 7, 12, 900));
    EXPECT_EQ(state.at("t.push").shape(), (Shape{5, 2}));
    // The rank given by a row's index modulo 3 stores its sums.
    const std::vector<std::vector<int32_t>> owned{{3, 12, 900}, {7}, {2}};
    const auto sum = state.at("t.sum.rows").values<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(sum.begin(), sum.end()), owned[static_cast<size_t>(ctx.rank)]);
    EXPECT_EQ(state.at("t.sum").mem_class(), MemClass::communication);
  });
}

TEST(Reducer, ATableMayForgetResiduals) {
  make_group(2)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer reducer({.kind = "one_bit", .residual = "none"}, "g");
    const Tensor own = draw(ctx, {4, 2}, 1);
    const std::vector<float> first = vector_of<float>(reduce_all(reducer, ctx, own, {2, 3, 7, 900}));
    EXPECT_TRUE(reducer.state().empty());
    EXPECT_EQ(vector_of<float>(reduce_all(reducer, ctx, own, {2, 3, 7, 900})), first);
  });
}

// Each of two ranks has a row that the other lacks. Neither row affects the means of the other rank, on whichever rank
// they are summed.
TEST(Reducer, ARankEncodesItsOwnRowsAlone) {
  for (const char* residual : {"rows", "none"}) {
    for (const int64_t width : {1, 5}) {
      for (const int32_t second : {1, 2}) {
        make_group(2)->run([&](Communicator& comm) {
          Context ctx = rank_context(comm);
          Reducer reducer({.kind = "one_bit", .residual = residual}, "g");
          Tensor row = ctx.zeros({1, width});
          for (float& v : row.values<float>()) v = ctx.rank == 0 ? 1.0f : -1.0f;
          const RowSparse own{{ctx.rank == 0 ? 0 : second}, row, true};
          for (int step = 0; step < 2; ++step) {
            const Tensor sum = reduce_some(reducer, ctx, own, {0, second});
            for (int64_t i = 0; i < 2 * width; ++i)
              EXPECT_EQ(sum.data<float>()[i], i < width ? 1 : -1) << residual << i;
          }
          if (std::string(residual) == "none") return;
          const StateDict state = reducer.state();
          // The residual contains this rank's own rows only.
          EXPECT_THAT(state.at("t.push.rows").values<int32_t>(), ElementsAre(own.indices[0]));
        });
      }
    }
  }
}

// The means of a column are sent once per column if it has enough rows.
TEST(Reducer, OneBitStaysNearOneBitAnEntry) {
  const Reducer reducer({.kind = "one_bit"}, "g");
  const auto bits = [&](int64_t rows, int64_t width, int ranks) {
    int64_t sent = 0;
    for (int to = 1; to < ranks; ++to) sent += sent_bytes(reducer.codec(), 0, to, ranks, rows, width);
    return 8 * static_cast<double>(sent) / (2 * static_cast<double>((ranks - 1) * rows * width) / ranks);
  };
  EXPECT_LT(bits(512, 2048, 192), 1.25);
  EXPECT_LT(bits(128, 1024, 64), 1.6);
  EXPECT_LT(bits(2048, 2048, 4), 1.05);
  EXPECT_LT(bits(1'000'000, 1, 64), 1.05);  // a vector is partitioned between rows
  const std::vector<int64_t> own(64, 10), all(64, 500);
  int64_t sent = 0;
  for (int to = 1; to < 64; ++to) sent += sent_row_bytes(reducer.codec(), 0, to, own, all, 512);
  EXPECT_LT(8 * static_cast<double>(sent) / (63 * (10.0 + 500.0) * 512), 1.1);
}

StateDict copied(const StateDict& state) {
  StateDict all;
  for (const auto& [key, t] : state) all[key] = t.clone(MemClass::other);
  return all;
}

// A skipped update leaves nothing in the residuals: neither its gradient nor, if that is infinite, the values that it
// overwrote.
TEST(Reducer, AnUpdateThatIsLeftOutTakesItsGradientAlong) {
  make_group(3)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer reducer({.kind = "one_bit"}, "g");
    const auto step = [&](uint64_t seed, int32_t row, float first) {
      Tensor dense = draw(ctx, {6, 4}, seed), rows = draw(ctx, {3, 2}, seed);
      dense.data<float>()[0] = rows.data<float>()[0] = first;
      reducer.reduce(ctx, "w", dense);
      reduce_all(reducer, ctx, rows, {1, row, 300});
    };
    step(1, 5, INFINITY);
    reducer.discard();
    EXPECT_TRUE(reducer.state().empty());
    step(2, 5, 1);
    reducer.commit();
    const StateDict before = copied(reducer.state());
    for (const float first : {1.0f, INFINITY}) {
      step(3, 7, first);
      reducer.discard();
      lmx_test::expect_same(reducer.state(), before);
    }
    reducer.discard();  // twice
    lmx_test::expect_same(reducer.state(), before);
    step(4, 9, 1);
    reducer.commit();
    const StateDict after = copied(reducer.state());
    EXPECT_THAT(after.at("t.push.rows").values<int32_t>(), ElementsAre(1, 5, 9, 300));
    reducer.discard();  // too late to have an effect
    lmx_test::expect_same(reducer.state(), after);
  });
}

// All residuals of `ranks` ranks after some steps, by parameter and element.
using Kept = std::map<std::string, std::vector<double>>;
void add_kept(Kept& kept, const StateDict& state, int rank, int ranks) {
  for (const auto& [key, t] : state) {
    if (key.ends_with(".rows")) continue;
    const auto index = state.find(key + ".rows");
    const bool sum = key.ends_with(".sum"), table = index != state.end();
    const comm::Part part = !sum    ? comm::Part{0, 11, 0, 2}
                            : table ? comm::table_part(1, 2, rank, ranks)
                                    : comm::part_of(11, 2, rank, ranks);
    std::vector<double>& to = kept[key.substr(0, key.find('.'))];
    to.resize(1000);
    for (int64_t i = 0; i < t.numel(); ++i) {
      const int64_t row = table ? index->second.data<int32_t>()[i / part.columns] : part.row + i / part.columns;
      to[static_cast<size_t>(row * 2 + part.column + i % part.columns)] += static_cast<double>(t.data<float>()[i]);
    }
  }
}
Kept all_kept(const std::vector<StateDict>& states) {
  Kept kept;
  for (size_t r = 0; r < states.size(); ++r)
    add_kept(kept, states[r], static_cast<int>(r), static_cast<int>(states.size()));
  return kept;
}

std::vector<StateDict> states_after_steps(int ranks) {
  std::vector<StateDict> states(static_cast<size_t>(ranks));
  make_group(ranks)->run([&](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer reducer({.kind = "one_bit"}, "g");
    for (uint64_t step = 0; step < 3; ++step) {
      reducer.reduce(ctx, "w", draw(ctx, {11, 2}, step));
      reduce_all(reducer, ctx, draw(ctx, {4, 2}, 9 + step), {1, 4, static_cast<int32_t>(5 + step), 300});
    }
    for (const auto& [key, t] : reducer.state()) {  // the ranks' allocators end with the group
      Tensor copy = Tensor::empty(Allocator::cpu(), t.shape(), t.dtype());
      copy.copy_from(t);
      states[static_cast<size_t>(ctx.rank)][key] = copy;
    }
  });
  return states;
}

class OtherRanks : public testing::TestWithParam<int> {};

TEST_P(OtherRanks, ResidualsAreSummedAndSplit) {
  const std::vector<StateDict> saved = states_after_steps(4);
  const Kept before = all_kept(saved);
  std::vector<StateDict> loaded(static_cast<size_t>(GetParam()));
  const auto group = make_group(GetParam());
  group->run([&](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer reducer({.kind = "one_bit"}, "g");
    reducer.load(ctx, saved);
    for (const auto& [key, t] : reducer.state()) {
      Tensor copy = Tensor::empty(Allocator::cpu(), t.shape(), t.dtype());
      copy.copy_from(t);
      loaded[static_cast<size_t>(ctx.rank)][key] = copy;
    }
    if (ctx.ranks == 1) return;
    // The residuals fit the next step.
    reducer.reduce(ctx, "w", draw(ctx, {11, 2}, 7));
    reduce_all(reducer, ctx, draw(ctx, {2, 2}, 8), {4, 300});
  });
  const Kept after = all_kept(loaded);
  ASSERT_EQ(after.size(), 2u);
  for (const auto& [name, values] : before)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(after.at(name)[i], values[i], 1e-5) << name << i;
}
INSTANTIATE_TEST_SUITE_P(Counts, OtherRanks, testing::Values(1, 2, 3, 4, 8));

TEST(Reducer, OneRankAddsWhatSeveralKept) {
  const std::vector<StateDict> saved = states_after_steps(4);
  const Kept before = all_kept(saved);
  const auto self = make_self_communicator();
  Context ctx = rank_context(*self);
  Reducer reducer({.kind = "one_bit"}, "g");
  reducer.load(ctx, saved);
  const Tensor dense = draw(ctx, {11, 2}, 7), rows = draw(ctx, {2, 2}, 8);
  const Tensor sum = reducer.reduce(ctx, "w", dense), row_sum = reduce_all(reducer, ctx, rows, {2, 300});
  for (int64_t i = 0; i < 22; ++i)
    EXPECT_NEAR(static_cast<double>(sum.data<float>()[i]),
                static_cast<double>(dense.data<float>()[i]) + before.at("w")[static_cast<size_t>(i)], 1e-5);
  for (int64_t c = 0; c < 2; ++c) {
    EXPECT_EQ(row_sum.data<float>()[c], rows.data<float>()[c]);  // row 2 was never sent
    EXPECT_NEAR(static_cast<double>(row_sum.data<float>()[2 + c]),
                static_cast<double>(rows.data<float>()[2 + c]) + before.at("t")[static_cast<size_t>(600 + c)], 1e-5);
  }
  // The residuals are added once: the next gradients are unchanged, and the table keeps only the residuals of rows that
  // have not been sent yet.
  EXPECT_EQ(reducer.reduce(ctx, "w", dense).raw(), dense.raw());
  EXPECT_EQ(vector_of<float>(reduce_all(reducer, ctx, rows, {2, 300})), vector_of<float>(rows));
  const StateDict state = reducer.state();
  const auto left = state.at("t.push.rows").values<int32_t>();
  EXPECT_THAT(std::vector<int32_t>(left.begin(), left.end()), ElementsAre(1, 4, 5, 6, 7));
}

TEST(Reducer, GathersBlocksOfAnySize) {
  for (const char* kind : {"none", "fp16"}) {
    make_group(3)->run([kind](Communicator& comm) {
      Context ctx = rank_context(comm);
      Reducer reducer({.kind = kind}, "g");
      Tensor own = ctx.zeros({ctx.rank * 2, 3});  // rank 0 has no rows
      for (float& v : own.values<float>()) v = static_cast<float>(ctx.rank);
      const std::vector<int64_t> rows{0, 2, 4};
      const Tensor all = reducer.gather(ctx, "t", own, rows);
      EXPECT_EQ(all.shape(), (Shape{6, 3}));
      for (int64_t i = 0; i < 18; ++i) EXPECT_EQ(all.data<float>()[i], i < 6 ? 1 : 2);
    });
  }
}

TEST(Reducer, SentBytes) {
  const Reducer none({}, "g"), fp16({.kind = "fp16"}, "g"), one_bit({.kind = "one_bit"}, "g");
  EXPECT_EQ(sent_bytes(none.codec(), 0, 3, 4, 8, 3), 2 * 24 * 4 / 4);
  EXPECT_EQ(sent_bytes(fp16.codec(), 0, 3, 4, 8, 3), 24 * 4 / 4);
  // Each rank owns eight columns: rank 0 sends the columns of rank 1, and the sum of its columns.
  EXPECT_EQ(sent_bytes(one_bit.codec(), 0, 1, 2, 7, 16), 2 * (64 + 7));
  EXPECT_EQ(sent_row_bytes(one_bit.codec(), 1, 0, std::vector<int64_t>{2, 0}, std::vector<int64_t>{7, 1}, 16),
            (64 + 2) + (64 + 8));
  // 3 and 4 rows, partitioned by the index of the table's row: rank 1 sends its two rows to rank 0, and the sum of the
  // one that it owns.
  EXPECT_EQ(sent_bytes(one_bit.codec(), 0, 1, 2, 7, 1), 2 * (8 + 1));
  EXPECT_EQ(sent_row_bytes(one_bit.codec(), 1, 0, std::vector<int64_t>{2, 0}, std::vector<int64_t>{17, 1}, 1),
            (8 + 1) + (8 + 1));
}

TEST(Reducer, Messages) {
  const auto self = make_self_communicator();
  Context one = rank_context(*self);
  Reducer fp16({.kind = "fp16"}, "g"), one_bit({.kind = "one_bit"}, "g");
  const StateDict kept{{"w.push", one.zeros({3, 2})}};
  EXPECT_THAT(user_error([&] { fp16.load(one, {kept, kept}); }), Names("w.push", "fp16"));
  EXPECT_THAT(user_error([&] { one_bit.load(one, {{{"w.pull", one.zeros({3, 2})}}, {}}); }), Names("'w.pull'"));
  one_bit.load(one, {kept, kept});
  EXPECT_THAT(user_error([&] { one_bit.reduce(one, "w", one.zeros({5, 2})); }), Names("(3, 2)", "(5, 2)"));
  make_group(2)->run([](Communicator& comm) {
    Context ctx = rank_context(comm);
    Reducer codec({.kind = "bf16"}, "g");
    EXPECT_THAT(user_error([&] { codec.reduce(ctx, "w", ctx.zeros({2}, DType::f64)); }), Names("bf16", "f64", "w is"));
    // The residual of another model, with the same number of ranks.
    Reducer feedback({.kind = "one_bit"}, "g");
    feedback.load(ctx, {{{"w.push", ctx.zeros({3, 2})}}, {{"w.push", ctx.zeros({3, 2})}}});
    EXPECT_THAT(user_error([&] { feedback.reduce(ctx, "w", ctx.zeros({4, 2})); }), Names("another model"));
  });
}

}  // namespace
}  // namespace lmx
