// Feed-forward layers: in f32 and f64 they have the bits of linear, the activation, dropout and linear; in bf16 and f16
// their units are rounded, and take two bytes each. A CUDA device against the CPU.
#include "device.h"
#include "ops/device_values.h"

namespace lmx::testing {
namespace {

// 64 and 128 units are processed by quads, the others one by one; 130 rows are several parts of a sum over rows. 4,100
// units are more than the CPU processes at once.
const LayerSizes kLayers[] = {
    {{3, 5}, 7, 4}, {{130, 6}, 64, 8}, {{2, 3, 8}, 128, 8}, {{2, 4}, 4100, 3}, {{0, 4}, 6, 3}};

struct UnitsCase {
  const char* name;
  Activation activation;
  double p = 0;
  bool biased = true;
  // Columns of the first product for a unit, and values that backward needs.
  int64_t parts() const { return activation == Activation::swiglu ? 2 : 1; }
  int64_t kept() const { return activation == Activation::relu ? 1 : parts() + 1; }
};
const UnitsCase kUnits[] = {{"relu", Activation::relu},
                            {"relu dropped", Activation::relu, 0.3},
                            {"relu without a bias", Activation::relu, 0.3, false},
                            {"gelu_tanh", Activation::gelu_tanh},
                            {"gelu_tanh without a bias", Activation::gelu_tanh, 0, false},
                            {"swiglu", Activation::swiglu},
                            {"swiglu without a bias", Activation::swiglu, 0, false}};

OpCase as_one_op(const LayerSizes& s, const UnitsCase& u) {
  const int64_t k = s.x[s.x.rank() - 1], columns = u.parts() * s.units;
  return {"feed_forward",
          str(u.name, ", ", s.x, " by ", s.units),
          [=](Context& c, const Vars& v) {
            const FeedForwardWeights w{v[1], u.biased ? v[2] : Var(), v[3], v[4], u.activation};
            return feed_forward(c, v[0], w, u.p, RandomKey(5), row_ids_of(s.x));
          },
          {s.x, {columns, k}, {columns}, {s.n, s.units}, {s.n}}};
}

// The units of pre-activations z by separate ops.
Var units_by_ops(Context& ctx, const Var& z, const UnitsCase& u, const std::vector<uint64_t>& ids) {
  if (u.activation == Activation::gelu_tanh) return gelu_tanh(ctx, z);
  if (u.activation == Activation::swiglu) return swiglu(ctx, z);
  return dropout(ctx, relu(ctx, z), u.p, RandomKey(5), ids);
}

OpCase as_separate_ops(const LayerSizes& s, const UnitsCase& u) {
  OpCase c = as_one_op(s, u);
  c.result = [=](Context& ctx, const Vars& v) {
    const Var z = linear(ctx, v[0], v[1], u.biased ? v[2] : Var());
    return linear(ctx, units_by_ops(ctx, z, u, row_ids_of(s.x)), v[3], v[4]);
  };
  return c;
}

// `rounding`: tolerance in units of the last place.
void expect_equal_to_the_separate_ops(Device device, double rounding) {
  for (const LayerSizes& s : kLayers) {
    for (const UnitsCase& u : kUnits) {
      for (const auto& [type, place] : {std::pair{DType::f32, 0x1p-23}, {DType::f64, 0x1p-52}}) {
        const OpCase c = as_one_op(s, u);
        SCOPED_TRACE(str(c.name, ' ', name_of(type)));
        expect_close(run_on(c, device, type, type), run_on(as_separate_ops(s, u), device, type, type),
                     u.activation == Activation::relu ? 0 : rounding * place);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

class DeviceFeedForward : public OnDevice {};

TEST(FeedForward, EqualsTheSeparateOps) {
  expect_equal_to_the_separate_ops({}, 0);
}

// The sums for a bias add products that are not rounded.
TEST_F(DeviceFeedForward, EqualsTheSeparateOps) {
  expect_equal_to_the_separate_ops(kDevice, 64);
}

// The formulas of feed_forward.cc with all roundings, step by step, on the CPU.
TEST(FeedForward, RoundsItsUnitsBeforeAndAfterTheActivation) {
  constexpr int64_t kRows = 5, inputs = 24, kUnitCount = 70, results = 6;
  const std::vector<uint64_t> ids = row_ids_of({kRows, inputs});
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const UnitsCase& u : kUnits) {
      if (!u.biased) continue;
      SCOPED_TRACE(str(u.name, ' ', name_of(type)));
      Place place({}, type);
      Context& ctx = place.ctx;
      const auto leaf = [&](const Shape& shape, uint64_t seed) { return place.leaf(f64_tensor(shape, seed)); };
      const auto rounded = [&](const Tensor& t) { return t.to(type).to(DType::f32); };
      const auto product = [&](const Tensor& a, bool trans_a, const Tensor& b, Shape shape) {
        Tensor c = ctx.empty(shape);
        gemm(ctx, to_compute(ctx, a), trans_a, to_compute(ctx, b), false, c);
        return c;
      };
      const int64_t columns = u.parts() * kUnitCount;
      const Var x = leaf({kRows, inputs}, 1), dout = place.leaf(f64_tensor({kRows, results}, 6), false);
      const FeedForwardWeights w{leaf({columns, inputs}, 2), leaf({columns}, 3), leaf({results, kUnitCount}, 4),
                                 leaf({results}, 5), u.activation};
      const Var out = feed_forward(ctx, x, w, u.p, RandomKey(5), ids);
      place.tape.backward(ctx, sum(ctx, multiply(ctx, out, dout)));

      const Var product_of_x(rounded(linear(ctx, x, w.up, Var()).value()));
      const Var z(add(ctx, product_of_x, w.up_bias).value(), true, "z");
      place.tape.clear();
      const Var y = units_by_ops(ctx, z, u, ids), rounded_y(rounded(y.value()));
      EXPECT_EQ(place.values(out.value()), place.values(linear(ctx, rounded_y, w.down, w.down_bias).value()));
      const Tensor dy = rounded(product(dout.value(), false, w.down.value(), {kRows, kUnitCount}));
      place.tape.backward(ctx, sum(ctx, multiply(ctx, y, Var(dy))));
      Tensor dz = z.grad().dense, dup_bias = ctx.zeros({columns});
      for (int64_t i = 0; i < dz.numel(); ++i) dup_bias.data<float>()[i % columns] += dz.data<float>()[i];
      EXPECT_EQ(place.gradient(w.up_bias), place.values(dup_bias));
      EXPECT_EQ(place.gradient(x), place.values(product(dz, false, w.up.value(), {kRows, inputs})));
      EXPECT_EQ(place.gradient(w.up), place.values(product(dz, true, x.value(), {columns, inputs})));
      EXPECT_EQ(place.gradient(w.down),
                place.values(product(dout.value(), true, rounded_y.value(), {results, kUnitCount})));
    }
  }
}

// Units may be rounded to the other neighbour: those of relu, which are below 4 for these inputs, by 2^-6 in bf16 and
// 2^-9 in fp16; those of swiglu are products of two such values. Two such units in a result are rare.
TEST_F(DeviceFeedForward, EqualsTheCpus) {
  for (const LayerSizes& s : kLayers) {
    for (const UnitsCase& u : kUnits) {
      const double neighbour = u.activation == Activation::swiglu ? 0x1p-3 : 0x1p-5;
      expect_equal(as_one_op(s, u), DType::f64, 1e-12);
      expect_equal(as_one_op(s, u), DType::f32, u.activation == Activation::relu ? 5e-5 : 2e-4);
      expect_equal(as_one_op(s, u), DType::f32, neighbour, DType::bf16);
      expect_equal(as_one_op(s, u), DType::f32, neighbour / 8, DType::f16);
      if (u.biased) expect_equal(as_one_op(s, u), DType::f32, neighbour, DType::bf16, 1);  // a bias anywhere
      if (HasFatalFailure()) return;
    }
  }
}

// The leaves of a layer of 5 rows, 24 inputs, 64 units and 24 results.
FeedForwardWeights small_weights(const std::function<Var(const Shape&)>& leaf, const UnitsCase& u) {
  const int64_t columns = 64 * u.parts();
  return {leaf({columns, 24}), u.biased ? leaf({columns}) : Var(), leaf({24, 64}), leaf({24}), u.activation};
}

// Bytes that one more layer keeps for its backward pass.
int64_t kept_bytes(Device::Kind kind, DType compute, const UnitsCase& u) {
  Context ctx = lmx_test::context_on(kind, compute);
  ctx.allocator = Allocator::counting(ctx.allocator);
  Tape tape;
  ctx.tape = &tape;
  const auto leaf = [&](const Shape& shape) {
    return Var(ctx.upload(f64_tensor(shape, 1).to(DType::f32)), true, "leaf");
  };
  const Var x = leaf({5, 24});
  const FeedForwardWeights w = small_weights(leaf, u);
  const Var first = feed_forward(ctx, x, w);  // rounds the weights and x
  const int64_t before = ctx.allocator->stats().total;
  const Var second = feed_forward(ctx, x, w);
  return ctx.allocator->stats().total - before - second.value().bytes();
}

void expect_units_kept_once(Device::Kind kind) {
  for (const UnitsCase& u : kUnits)
    for (const DType compute : {DType::f32, DType::bf16, DType::f16})
      EXPECT_EQ(kept_bytes(kind, compute, u), u.kept() * static_cast<int64_t>(5 * 64 * size_of(compute))) << u.name;
}

TEST(FeedForward, KeepsItsUnitsOnce) {
  expect_units_kept_once(Device::Kind::cpu);
}

TEST_F(DeviceFeedForward, KeepsItsUnitsOnce) {
  expect_units_kept_once(Device::Kind::cuda);
}

TEST_F(DeviceFeedForward, IsThreeLaunchesForwardAndEightBackward) {
  for (const UnitsCase& u : kUnits) {
    for (const bool frozen : {false, true}) {
      SCOPED_TRACE(str(u.name, frozen ? ", frozen" : ""));
      Place place(kDevice, DType::bf16);
      const auto leaf = [&](const Shape& shape) {
        return place.leaf(f64_tensor(shape, 1), !frozen || shape.rank() != 1);
      };
      const Var x = leaf({5, 24});
      const FeedForwardWeights w = small_weights(leaf, u);
      (void)feed_forward(place.ctx, x, w);  // rounds the weights and x
      place.tape.clear();
      Var out;
      EXPECT_EQ(launches_of([&] { out = feed_forward(place.ctx, x, w); }),
                (Launches{{"feed_forward_units", 1}, {"gemm", 2}}));
      const Var loss = sum(place.ctx, gelu(place.ctx, out));
      Launches backward = launches_of([&] { place.tape.backward(place.ctx, loss); });
      // A second kernel adds the parts of the sums for a bias, which only the gradient of a bias needs.
      EXPECT_EQ(backward["feed_forward_units_backward"], u.biased && !frozen ? 2 : 1);
      EXPECT_EQ(backward["gemm"], 4);
      EXPECT_EQ(backward["column_sums"], frozen ? 0 : 2);
      EXPECT_EQ(backward.count("convert"), 0u);
    }
  }
}

}  // namespace
}  // namespace lmx::testing
