// The tape, on the device that LMX_TEST_DEVICE names.
#include <gtest/gtest.h>

#include "autograd/gradient_sums.h"
#include "device.h"
#include "lmx/autograd.h"
#include "lmx/error.h"
#include "ops/common.h"

namespace lmx {
namespace {

using lmx_test::values_of;

Tensor values(Context& ctx, std::vector<float> v) {
  Tensor t = ctx.empty({static_cast<int64_t>(v.size())});
  copy_values(t, Tensor::from<float>(Allocator::cpu(), t.shape(), v));
  return t;
}

// y = k * x, recorded by hand.
Var times(Context& ctx, const Var& x, float k) {
  Tensor out = x.value().clone();
  ops::scale_in_place(ctx, out, k);
  Var y(out);
  if (ctx.tape) {
    ctx.tape->record("times", {x}, {y}, [&ctx, x, y, k](Tape& tape) {
      Tensor g = tape.grad_of(y).clone();
      ops::scale_in_place(ctx, g, k);
      Tape::accumulate(ctx, x, g);
    });
  }
  return y;
}

Var join(Context& ctx, const Var& a, const Var& b) {
  Tensor out = a.value().clone();
  add_tensor(ctx, out, b.value());
  Var y(out);
  ctx.tape->record("join", {a, b}, {y}, [&ctx, a, b, y](Tape& tape) {
    Tape::accumulate(ctx, a, tape.grad_of(y).clone());
    Tape::accumulate(ctx, b, tape.grad_of(y).clone());
  });
  return y;
}

struct TapeTest : testing::Test {
  TapeTest() { ctx.tape = &tape; }
  double first(const Tensor& t) const { return values_of(ctx, t)[0]; }
  Context ctx = lmx_test::test_context();
  Tape tape;
};

TEST_F(TapeTest, GradientsOfSharedInputsAdd) {
  const Var x(values(ctx, {2}), true, "x");
  const Var y = join(ctx, times(ctx, x, 3), times(ctx, x, 4));
  tape.backward(ctx, y, 10);
  EXPECT_EQ(first(x.grad().dense), 70);
}

TEST_F(TapeTest, LeafGradientsAccumulateOverBackwards) {
  const Var x(values(ctx, {2}), true, "x");
  tape.backward(ctx, times(ctx, x, 3));
  tape.backward(ctx, times(ctx, x, 3));
  EXPECT_EQ(first(x.grad().dense), 6);
  EXPECT_EQ(x.grad().dense.mem_class(), MemClass::gradients);
}

TEST_F(TapeTest, ReadyOnceAfterTheLastUse) {
  const Var x(values(ctx, {1}), true, "x"), z(values(ctx, {1}), true, "z");
  std::vector<std::string> ready;
  std::vector<double> seen;
  tape.on_ready = [&](const Var& v) {
    ready.push_back(v.name());
    seen.push_back(first(v.grad().dense));
  };
  const Var inner = times(ctx, join(ctx, x, z), 2);
  const Var again = times(ctx, x, 5);
  tape.backward(ctx, join(ctx, inner, again));
  EXPECT_EQ(ready, (std::vector<std::string>{"x", "z"}));
  EXPECT_EQ(seen, (std::vector<double>{7, 2}));
}

TEST_F(TapeTest, NothingIsRecordedWithoutGradients) {
  const Var x(values(ctx, {1}));
  const Var y = times(ctx, x, 2);
  EXPECT_FALSE(y.requires_grad());
  tape.backward(ctx, y);
  EXPECT_TRUE(x.grad().empty());
}

TEST_F(TapeTest, ActivationsAreFreedOnTheWay) {
  const Var x(values(ctx, std::vector<float>(1024, 1.f)), true, "x");
  const int64_t before = ctx.allocator->stats().total;
  {
    Var y = times(ctx, x, 2);
    for (int i = 0; i < 5; ++i) y = times(ctx, y, 2);
    Var loss(values(ctx, {0}));
    tape.record("sum", {y}, {loss}, [this, y](Tape&) { Tape::accumulate(ctx, y, y.value().clone()); });
    tape.backward(ctx, loss);
  }
  EXPECT_EQ(ctx.allocator->stats().total, before + x.grad().dense.bytes());
}

TEST_F(TapeTest, CachedCopiesLastUntilTheValueChanges) {
  Var x(values(ctx, {3}), true, "x");
  int made = 0;
  const auto make = [&] {
    ++made;
    return first(x.value()) * 2;
  };
  EXPECT_EQ(x.cached<double>("twice", make), 6);
  EXPECT_EQ(x.cached<double>("twice", make), 6);
  EXPECT_EQ(made, 1);
  x.value().copy_from(values(ctx, {5}));
  x.changed();
  EXPECT_EQ(x.cached<double>("twice", make), 10);
  EXPECT_EQ(x.version(), 1u);
}

RowSparse rows(Context& ctx, std::vector<int32_t> indices, std::vector<float> v, int64_t width) {
  const auto n = static_cast<int64_t>(indices.size());
  return {std::move(indices), values(ctx, std::move(v)).reshape({n, width}), false};
}

TEST_F(TapeTest, CoalesceSumsRepeatsAndSorts) {
  const RowSparse out = coalesce(ctx, {rows(ctx, {7, 2, 7}, {1, 2, 3, 4, 5, 6}, 2), rows(ctx, {2}, {10, 20}, 2)});
  EXPECT_EQ(out.indices, (std::vector<int32_t>{2, 7}));
  EXPECT_TRUE(out.unique);
  EXPECT_EQ(values_of(ctx, out.rows), (std::vector<double>{13, 24, 6, 8}));
}

// In float 1 + 1e8 - 1e8 is 0, and in the opposite order 1. Indices from 2048 on are sorted by two digits.
TEST_F(TapeTest, CoalesceAddsRepeatsInTheirOrder) {
  for (const int32_t last : {9, 4099}) {
    const RowSparse first = rows(ctx, {last, 3, last, 5}, {1, 7, 1e8f, 8}, 1);
    const RowSparse out = coalesce(ctx, {first, rows(ctx, {last}, {-1e8f}, 1)});
    EXPECT_EQ(out.indices, (std::vector<int32_t>{3, 5, last}));
    EXPECT_EQ(values_of(ctx, out.rows), (std::vector<double>{7, 8, 0}));
  }
}

TEST_F(TapeTest, CoalesceOfNoRows) {
  const RowSparse out = coalesce(ctx, {rows(ctx, {}, {}, 3)});
  EXPECT_TRUE(out.indices.empty());
  EXPECT_EQ(out.rows.shape(), (Shape{0, 3}));
}

TEST_F(TapeTest, DenseAndRowSparseCombine) {
  const Var table(ctx.zeros({3, 2}), true, "t");
  Tape::accumulate_rows(ctx, table, rows(ctx, {1, 1}, {1, 2, 3, 4}, 2));
  EXPECT_TRUE(table.grad().sparse());
  Tape::accumulate(ctx, table, values(ctx, {9, 0, 0, 0, 0, 0}).reshape({3, 2}));
  EXPECT_FALSE(table.grad().sparse());
  Tape::accumulate_rows(ctx, table, rows(ctx, {2}, {7, 8}, 2));
  EXPECT_EQ(values_of(ctx, table.grad().dense), (std::vector<double>{9, 0, 4, 6, 7, 8}));
}

TEST_F(TapeTest, BackwardFromManyElementsIsRefused) {
  const Var x(values(ctx, {1, 2}), true, "x");
  EXPECT_THROW(tape.backward(ctx, times(ctx, x, 2)), InternalError);
}

}  // namespace
}  // namespace lmx
