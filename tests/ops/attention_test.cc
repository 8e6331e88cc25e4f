// Attention against its formula written out, in one block and in many, in every type, however sequences are cut.
#include <cmath>

#include "lmx/ops.h"
#include "lmx/parallel.h"
#include "ops/gradcheck.h"
#include "ops/messages.h"

namespace lmx::testing {
namespace {

using Lengths = std::vector<int64_t>;

struct Case {
  Lengths queries, keys;
  int64_t heads = 1, d = 1;
  bool causal = false;
};

// softmax(q k^T / sqrt(d / heads)) v by the formula.
std::vector<double> reference(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Segments sq = Segments::of(c.queries), sk = Segments::of(c.keys);
  const int64_t size = c.d / c.heads;
  std::vector<double> y(static_cast<size_t>(q.numel()));
  for (size_t b = 0; b < c.queries.size(); ++b) {
    for (int64_t i = sq.begin[b]; i < sq.begin[b + 1]; ++i) {
      const int64_t last = c.causal ? sk.begin[b] + (i - sq.begin[b]) + 1 : sk.begin[b + 1];
      for (int64_t h = 0; h < c.heads; ++h) {
        std::vector<double> w;
        double sum = 0;
        for (int64_t j = sk.begin[b]; j < last; ++j) {
          double s = 0;
          for (int64_t e = h * size; e < (h + 1) * size; ++e)
            s += q.data<double>()[i * c.d + e] * k.data<double>()[j * c.d + e];
          w.push_back(std::exp(s / std::sqrt(static_cast<double>(size))));
          sum += w.back();
        }
        for (int64_t j = sk.begin[b]; j < last; ++j) {
          for (int64_t e = h * size; e < (h + 1) * size; ++e) {
            y[static_cast<size_t>(i * c.d + e)] +=
                w[static_cast<size_t>(j - sk.begin[b])] / sum * v.data<double>()[j * c.d + e];
          }
        }
      }
    }
  }
  return y;
}

int64_t rows_of(const Lengths& lengths) {
  return Segments::of(lengths).begin.back();
}

struct Outcome {
  std::vector<double> y, dq, dk, dv;
};

AttentionOptions with(int64_t heads, bool causal = false, double p = 0, RandomKey key = {},
                      std::span<const uint64_t> row_ids = {}) {
  AttentionOptions o;
  o.heads = heads;
  o.causal = causal;
  o.dropout = p;
  o.key = key;
  o.row_ids = row_ids;
  return o;
}

std::vector<uint64_t> count_from(uint64_t first, int64_t n) {
  std::vector<uint64_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(first + static_cast<uint64_t>(i));
  return ids;
}

struct Inputs {
  Tensor q, k, v, dy;  // f64
  explicit Inputs(const Case& c)
      : q(f64_tensor({rows_of(c.queries), c.d}, 1)),
        k(f64_tensor({rows_of(c.keys), c.d}, 2)),
        v(f64_tensor({rows_of(c.keys), c.d}, 3)),
        dy(f64_tensor({rows_of(c.queries), c.d}, 4)) {}
};

std::vector<double> doubles(const Tensor& t) {
  const Tensor wide = t.to(DType::f64);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

Outcome outcome(const Case& c, const Inputs& x, DType compute, double p = 0) {
  Tape tape;
  Context ctx;
  ctx.compute = compute;
  ctx.tape = &tape;
  const DType type = compute == DType::f64 ? DType::f64 : DType::f32;
  const Var q(x.q.to(type), true, "q"), k(x.k.to(type), true, "k"), v(x.v.to(type), true, "v");
  const std::vector<uint64_t> ids = count_from(100, q.value().dim(0));
  const Var y = attention(ctx, {q, k, v, Segments::of(c.queries), Segments::of(c.keys)},
                          with(c.heads, c.causal, p, RandomKey(5), ids));
  tape.backward(ctx, sum(ctx, multiply(ctx, y, Var(x.dy.to(type)))));
  return {doubles(y.value()), dense_gradient(q), dense_gradient(k), dense_gradient(v)};
}

void expect_near(const Outcome& a, const Outcome& b, double limit) {
  EXPECT_LE(difference(a.y, b.y), limit);
  EXPECT_LE(difference(a.dq, b.dq), limit);
  EXPECT_LE(difference(a.dk, b.dk), limit);
  EXPECT_LE(difference(a.dv, b.dv), limit);
}

const Case kShort{{5, 1, 17, 8}, {3, 20, 1, 16}, 2, 24, false};
const Case kCausal{{5, 1, 17, 33}, {5, 1, 17, 33}, 4, 64, true};
const Case kOdd{{7, 1, 45}, {7, 1, 45}, 2, 14, true};     // heads, rows and keys of odd sizes
const Case kLong{{700}, {2900}, 1, 40, false};            // blocks of 22 queries
const Case kLongCausal{{900, 3}, {900, 3}, 2, 16, true};  // rows of 912 keys: blocks of 71 queries in f32, 35 in f64

TEST(Attention, EqualsTheFormula) {
  for (const Case& c : {kShort, kCausal, kLong, kLongCausal}) {
    const Inputs x(c);
    const std::vector<double> y = reference(c, x.q, x.k, x.v);
    EXPECT_LE(difference(outcome(c, x, DType::f64).y, y), 1e-13);
    EXPECT_LE(difference(outcome(c, x, DType::f32).y, y), 2e-6);
  }
}

// The gradients of f64 are checked against differences in gradcheck_test.cc (one block); here many blocks against few.
TEST(Attention, FloatsFollowDoubles) {
  for (const Case& c : {kShort, kCausal, kLong, kLongCausal}) {
    const Inputs x(c);
    expect_near(outcome(c, x, DType::f32), outcome(c, x, DType::f64), 5e-6);
    expect_near(outcome(c, x, DType::f32, 0.3), outcome(c, x, DType::f64, 0.3), 5e-6);
  }
}

// Operands of one variable share its gradient, whichever two they are.
TEST(Attention, TwoOperandsMayBeOneVariable) {
  const Segments s = Segments::of(Lengths{3, 4});
  for (const auto& [q, k, v] : {std::array{0, 0, 1}, std::array{1, 0, 0}, std::array{0, 1, 0}, std::array{0, 0, 0}})
    gradcheck(
        [&, q = q, k = k, v = v](Context& c, const std::vector<Var>& x) {
          const auto of = [&](int i) { return x[static_cast<size_t>(i)]; };
          const Var y = attention(c, {of(q), of(k), of(v), s, s}, with(2));
          return sum(c, multiply(c, y, Var(f64_tensor(y.shape(), 7))));
        },
        {f64_leaf({7, 4}, 1, "first"), f64_leaf({7, 4}, 2, "second")});
}

TEST(Attention, ManyBlocksHaveTheGradientsOfDifferences) {
  const Segments s = Segments::of(Lengths{150});
  GradcheckOptions options;
  options.per_leaf = 12;
  // 3,000 keys of which f64 takes 12 queries at a time.
  gradcheck(
      [&](Context& c, const std::vector<Var>& v) {
        const Segments keys = Segments::of(Lengths{3000});
        const Var y = attention(c, {v[0], v[1], v[2], s, keys}, with(1));
        return sum(c, multiply(c, y, Var(f64_tensor(y.shape(), 7))));
      },
      {f64_leaf({150, 2}, 1, "q"), f64_leaf({3000, 2}, 2, "k"), f64_leaf({3000, 2}, 3, "v")}, options);
  const Segments own = Segments::of(Lengths{600});
  gradcheck(
      [&](Context& c, const std::vector<Var>& v) {
        const std::vector<uint64_t> ids = count_from(0, 600);
        const Var y = attention(c, v[0], own, with(1, true, 0.2, RandomKey(3), ids));
        return sum(c, multiply(c, y, Var(f64_tensor(y.shape(), 7))));
      },
      {f64_leaf({600, 6}, 1, "qkv")}, options);
}

TEST(Attention, HalfPrecisionsRoundAsProductsDo) {
  for (const Case& c : {kShort, kCausal, kOdd, kLongCausal}) {
    const Inputs x(c);
    const Outcome exact = outcome(c, x, DType::f64), bf16 = outcome(c, x, DType::bf16), f16 = outcome(c, x, DType::f16);
    expect_near(bf16, exact, 3e-2);
    expect_near(f16, exact, 4e-3);
    expect_near(outcome(c, x, DType::bf16, 0.3), outcome(c, x, DType::f64, 0.3), 3e-2);
    EXPECT_GT(difference(bf16.y, exact.y), 1e-4);
    EXPECT_GT(difference(f16.y, exact.y), 1e-5);
  }
}

TEST(Attention, SameBitsForAnyNumberOfThreads) {
  const int before = num_threads();
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const Case& c : {kCausal, kOdd, kLongCausal}) {
      const Inputs x(c);
      set_num_threads(1);
      const Outcome one = outcome(c, x, type, 0.1);
      set_num_threads(3);
      const Outcome three = outcome(c, x, type, 0.1);
      EXPECT_EQ(one.y, three.y);
      EXPECT_EQ(one.dq, three.dq);
      EXPECT_EQ(one.dk, three.dk);
      EXPECT_EQ(one.dv, three.dv);
    }
  }
  set_num_threads(before);
}

// Queries and keys are one variable: a row is a query of one sequence and a key of another, or a column belongs to one
// head of queries and to another one of keys. One thread at a time adds to its gradient.
TEST(Attention, SharedElementsHaveTheSameBitsForAnyNumberOfThreads) {
  const int before = num_threads();
  const Segments queries = Segments::of(Lengths{60, 7, 50, 9}), keys = Segments::of(Lengths{9, 50, 7, 60});
  AttentionOptions grouped = with(4);
  grouped.kv_heads = 2;
  for (const bool of_rows : {true, false}) {
    const auto gradient = [&](int threads) {
      set_num_threads(threads);
      Tape tape;
      Context ctx;
      ctx.tape = &tape;
      const Var x(f64_tensor({126, 32}, 1).to(DType::f32), true, "x");
      const Var y =
          of_rows ? attention(ctx, {x, x, x, queries, keys}, with(2)) : attention(ctx, x, x, queries, queries, grouped);
      tape.backward(ctx, sum(ctx, multiply(ctx, y, Var(f64_tensor(y.shape(), 2).to(DType::f32)))));
      return dense_gradient(x);
    };
    const std::vector<double> one = gradient(1);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(gradient(3), one) << of_rows;
  }
  set_num_threads(before);
}

TEST(Attention, WhatMemoryContainedBeforeDoesNotMatter) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t n : {100, 1000, 10'000, 100'000, 300'000}) {
      const Tensor used = Context().empty({n});
      std::ranges::fill(Tensor(used).values<float>(), std::numeric_limits<float>::quiet_NaN());
    }
    const Outcome got = outcome(kOdd, Inputs(kOdd), type);
    for (const std::vector<double>* values : {&got.y, &got.dq, &got.dk, &got.dv})
      for (const double x : *values) ASSERT_TRUE(std::isfinite(x)) << name_of(type);
  }
}

// A sequence gives the same bits alone as among others, with the noise of its rows' ids.
TEST(Attention, SequencesDoNotSeeEachOther) {
  const Case all{{5, 9, 17}, {5, 9, 17}, 2, 8, true};
  const Inputs x(all);
  const Segments s = Segments::of(all.queries);
  for (const DType type : {DType::f32, DType::bf16}) {
    const Outcome whole = outcome(all, x, type, 0.3);
    Context ctx;
    ctx.compute = type;
    for (size_t b = 0; b < 3; ++b) {
      const int64_t first = s.begin[b], last = s.begin[b + 1];
      const auto part = [&](const Tensor& t) { return Var(t.to(DType::f32).slice(first, last)); };
      const Segments own = Segments::of(Lengths{last - first});
      const std::vector<uint64_t> ids = count_from(100 + static_cast<uint64_t>(first), last - first);
      const Var y = attention(ctx, {part(x.q), part(x.k), part(x.v), own, own}, with(2, true, 0.3, RandomKey(5), ids));
      const std::vector<double> want(whole.y.begin() + first * 8, whole.y.begin() + last * 8);
      EXPECT_EQ(doubles(y.value()), want);
    }
  }
}

// With v all ones a row is the sum of its dropped weights: 1 on the average, rarely 1 exactly.
TEST(Attention, DropoutKeepsTheMeanAndRestsInEvaluation) {
  const int64_t n = 400;
  Context ctx;
  const Segments s = Segments::of(Lengths{n});
  Tensor ones = ctx.empty({n, 4});
  for (float& x : ones.values<float>()) x = 1;
  const Var q(f64_tensor({n, 4}, 1, 0.1).to(DType::f32));
  const std::vector<uint64_t> ids = count_from(0, n);
  const auto rows = [&] {
    return doubles(attention(ctx, {q, q, Var(ones), s, s}, with(2, false, 0.25, RandomKey(5), ids)).value());
  };
  double sum = 0;
  std::vector<double> y = rows();
  for (const double value : y) sum += value;
  EXPECT_NEAR(sum / static_cast<double>(y.size()), 1, 0.01);
  EXPECT_GT(std::count_if(y.begin(), y.end(), [](double value) { return std::abs(value - 1) > 1e-3; }), 1000);
  EXPECT_NE(y[0], y[2]);  // heads draw masks of their own
  ctx.training = false;
  for (const double value : rows()) EXPECT_NEAR(value, 1, 1e-5);
}

// Weights of 2 heads and 2,000 x 2,000 positions would be 32 MB.
TEST(Attention, MemoryGrowsWithTheRowsAlone) {
  const int64_t n = 2000;
  Tape tape;
  Context ctx;
  ctx.tape = &tape;
  const Var x(f64_tensor({n, 3 * 16}, 1).to(DType::f32), true, "x");
  ctx.allocator->trim();
  ctx.allocator->reset_peak();
  const int64_t before = ctx.allocator->stats().total;
  tape.backward(ctx, sum(ctx, attention(ctx, x, Segments::of(Lengths{n}), with(2, true))));
  EXPECT_LT(ctx.allocator->stats().total_peak - before, 8 << 20);
}

TEST(Attention, DoublesAreNotRounded) {
  const Inputs x(kShort);
  const Segments q = Segments::of(kShort.queries), k = Segments::of(kShort.keys);
  Context ctx;
  const auto y = [&] {
    return doubles(attention(ctx, {Var(x.q), Var(x.k), Var(x.v), q, k}, with(kShort.heads)).value());
  };
  const std::vector<double> want = y();
  for (const DType type : {DType::bf16, DType::f16}) {
    ctx.compute = type;
    EXPECT_EQ(y(), want) << name_of(type);
  }
}

// Only a bias can hide all keys of a query. Scores that overflow are an error that a training must see.
TEST(Attention, ScoresThatOverflowGiveNaN) {
  Context ctx;
  const Segments s = Segments::of(Lengths{1});
  const auto filled = [&](float value) {
    Tensor t = ctx.empty({1, 8});
    std::fill(t.values<float>().begin(), t.values<float>().end(), value);
    return Var(t);
  };
  const Var y = attention(ctx, {filled(1e30f), filled(-1e30f), filled(1), s, s}, with(1));
  for (const double value : doubles(y.value())) EXPECT_TRUE(std::isnan(value));
}

TEST(Attention, Errors) {
  const Segments two = Segments::of(Lengths{2}), three = Segments::of(Lengths{3}), parts = Segments::of(Lengths{1, 1});
  const auto call = [&](Shape q, Shape k, const Segments& sq, const Segments& sk, int64_t heads, double p = 0) {
    return message([&](Context& c) { attention(c, {zeros(q), zeros(k), zeros(k), sq, sk}, with(heads, false, p)); });
  };
  EXPECT_EQ(call({2, 4}, {3, 6}, two, three, 2),
            "[attention] q (2, 4), k (3, 6) and v (3, 6) of 2 and 2 heads: (N, heads size), (M, kv_heads size) and (M, "
            "kv_heads size) expected");
  EXPECT_EQ(call({2, 1, 4}, {3, 4}, two, three, 2),
            "[attention] q (2, 1, 4): (rows, columns) expected, the columns divided evenly over 2 heads");
  EXPECT_EQ(call({2, 4}, {3, 4}, two, three, 3),
            "[attention] q (2, 4): (rows, columns) expected, the columns divided evenly over 3 heads");
  EXPECT_EQ(call({2, 4}, {3, 4}, three, three, 2),
            "[attention] queries end at row 3 of (2, 4): sequences must follow each other from row 0 to the last");
  EXPECT_EQ(call({2, 4}, {3, 4}, parts, three, 2),
            "[attention] 2 sequences of 2 queries and 1 of 3 keys: the numbers must be equal");
  EXPECT_EQ(call({2, 4}, {3, 4}, parts, Segments::of(Lengths{3, 0}), 2),
            "[attention] sequence 1 has 1 queries and no keys: there is nothing to attend to");
  EXPECT_EQ(call({2, 4}, {3, 4}, two, three, 2, 1.0), "[attention] dropout 1: must be in [0, 1)");
  EXPECT_EQ(call({2, 4}, {3, 4}, two, three, 2, 0.5), "[attention] 0 row ids for q (2, 4): one for each row expected");
  EXPECT_EQ(message([&](Context& c) {
              attention(c, {zeros({2, 4}), zeros({3, 4}), zeros({3, 4}), two, three}, with(2, true));
            }),
            "[attention] 1 sequences of 2 queries and 1 of 3 keys: a causal attention has a key for each query");
  EXPECT_EQ(message([&](Context& c) {
              attention(c, zeros({2, 4}), two, with(2, true));
            }),
            "[attention] qkv (2, 4): (rows, columns) expected, the columns divided evenly over 6 heads");
  EXPECT_EQ(message([&](Context& c) {
              attention(c, zeros({2, 4}), zeros({3, 6}), two, three, with(2));
            }),
            "[attention] kv (3, 6): (rows, columns) expected, the columns divided evenly over 4 heads");
  EXPECT_EQ(message([&](Context& c) {
              attention(c, zeros({2, 4}), zeros({3, 8}, DType::f64), two, three, with(2));
            }),
            "[attention] q (2, 4) f32 and k (3, 8) f64: types differ");
}

}  // namespace
}  // namespace lmx::testing
