// Attention of projections. On a device in bf16 and f16, the queries, keys, values and the result have the type of
// products alone; elsewhere it consists of the ops linear and attention.
#include "device.h"
#include "ops/device_attention_cases.h"

namespace lmx::testing {
namespace {

class DeviceProjections : public OnDevice {};

constexpr int64_t kInputs = 3, kResults = 2;

struct ProjectedCase {
  Sizes sizes;
  bool across = false, biased = true;
  double p = 0;
  bool rotated = false;
  int64_t columns() const { return sizes.size * (sizes.heads + 2 * sizes.kv_heads); }
};

// The leaves, with weights and biases so small that rounding errors do not grow in products of up to 128 columns.
Vars small(Context& ctx, const Vars& leaves) {
  Vars v = leaves;
  for (size_t i = 2; i < v.size(); ++i) v[i] = scale(ctx, v[i], 0.25);
  return v;
}

// A linear layer of the attention of projections. Leaves: x and the source of keys, weights and biases of the
// projections, the weight of the last layer. `rounds`: by separate ops, with the roundings of a device.
OpCase case_of(const ProjectedCase& c, bool rounds = false) {
  const Sizes& s = c.sizes;
  const int64_t q = s.heads * s.size, kv = 2 * s.kv_heads * s.size;
  const int64_t n = sum_of(s.queries), m = c.across ? sum_of(s.keys) : n;
  const auto projected = [=](Context& ctx, const Projection& p) {
    const Var y = with_rounded_value(ctx, linear(ctx, p.x, p.w, Var()));
    return p.b.defined() ? add(ctx, y, p.b) : y;
  };
  return {"attention",
          str(n, " queries, ", m, " keys of ", s.size, c.biased ? "" : ", no bias", ", dropout ", c.p),
          [=](Context& ctx, const Vars& leaves) {
            const Vars v = small(ctx, leaves);
            const std::vector<uint64_t> ids = ids_of(n);
            AttentionOptions o = options_of(s, c.p, ids);
            o.causal = !c.across;
            const Segments rows = Segments::of(s.queries), keys = Segments::of(s.keys);
            const Projection first{v[0], v[2], c.biased ? v[3] : Var()}, second{v[1], v[4], c.biased ? v[5] : Var()};
            RopeOptions turn{s.heads + 2 * s.kv_heads};
            turn.rotated = s.heads + s.kv_heads;
            const auto rotations = [&] { return rotations_of(ctx, positions_of(rows), s.size, turn, DType::f32); };
            Var y;
            if (c.rotated && rounds)
              y = attention(ctx, with_rounded_value(ctx, rope(ctx, projected(ctx, first), rotations(), turn)), rows, o);
            else if (c.rotated)
              y = attention(ctx, rope(ctx, first, rotations(), turn), rows, o);
            else if (c.across && rounds)
              y = attention(ctx, projected(ctx, first), projected(ctx, second), rows, keys, o);
            else if (c.across)
              y = attention(ctx, first, second, rows, keys, o);
            else if (rounds)
              y = attention(ctx, projected(ctx, first), rows, o);
            else
              y = attention(ctx, first, rows, o);
            return linear(ctx, y, v[6], Var());
          },
          {{n, kInputs},
           {m, kInputs},
           {c.across ? q : q + kv, kInputs},
           {c.across ? q : q + kv},
           {kv, kInputs},
           {kv},
           {kResults, q}}};
}

// Sentences of 32 and of 64 rows, tiles, heads that share keys, heads of each size, also of columns that are not a
// multiple of 8.
const ProjectedCase kProjected[] = {{{{27, 0, 16, 17}, {27, 3, 16, 33}, 2, 2, 64}, true},
                                    {{{27, 1, 32}, {}, 2, 2, 64}, false},
                                    {{{33, 64}, {64, 31}, 1, 1, 32}, true, false},
                                    {{{17, 32}, {31, 32}, 2, 2, 33}, true},
                                    {{{64, 5}, {}, 1, 1, 128}, false},
                                    {{{70, 1}, {7, 200}, 2, 1, 40}, true},
                                    {{{100, 3}, {}, 4, 2, 20}, false, false},
                                    {{{0}, {0}, 1, 1, 2}, true}};
// Rotated projections, also of more rows than others have in the type of products alone, and of pairs without quads.
const ProjectedCase kRotated[] = {{{{27, 1, 32}, {}, 2, 2, 64}, false, true, 0, true},
                                  {{{100, 3}, {}, 4, 2, 20}, false, false, 0, true},
                                  {{{5, 9}, {}, 2, 1, 6}, false, true, 0, true},
                                  {{{515}, {}, 1, 1, 8}, false, true, 0, true}};
// Attention that has its operands in f32.
const ProjectedCase kWide{{{40}, {}, 1, 1, 129}, false}, kLong{{{3}, {513}, 1, 1, 8}, true};

std::vector<Values> expected(const ProjectedCase& c, DType compute, bool rounds) {
  return run_on(case_of(c, rounds), {}, DType::f32, compute);
}

// Without roundings these are the ops linear and attention.
TEST(Projections, EqualTheSeparateOps) {
  for (const ProjectedCase& c : kProjected) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      OpCase separate = case_of(c);
      separate.result = [=](Context& ctx, const Vars& leaves) {
        const Vars v = small(ctx, leaves);
        const std::vector<uint64_t> ids = ids_of(sum_of(c.sizes.queries));
        AttentionOptions o = options_of(c.sizes, c.p, ids);
        o.causal = !c.across;
        const Segments rows = Segments::of(c.sizes.queries);
        const Var q = linear(ctx, v[0], v[2], c.biased ? v[3] : Var());
        const Var y = c.across ? attention(ctx, q, linear(ctx, v[1], v[4], c.biased ? v[5] : Var()), rows,
                                           Segments::of(c.sizes.keys), o)
                               : attention(ctx, q, rows, o);
        return linear(ctx, y, v[6], Var());
      };
      expect_close(run_on(case_of(c), {}, DType::f32, compute), run_on(separate, {}, DType::f32, compute), 0);
    }
  }
}

// Both sides have the same q, k and v, and differ as those of device_attention_mma_test.cc. A result of the last
// layer is the sum of up to 128 elements of y, and a gradient that of up to 240 slopes.
TEST_F(DeviceProjections, EqualTheCpus) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    const double tolerance = compute == DType::bf16 ? 0.02 : 0.0025;
    for (ProjectedCase c : kProjected) {
      for (c.p = 0; c.p < 0.5; c.p += 0.3) {
        SCOPED_TRACE(str(case_of(c).name, ' ', name_of(compute)));
        expect_close(run_on(case_of(c), kDevice, DType::f32, compute), expected(c, compute, true), tolerance);
        if (HasFatalFailure()) return;
      }
    }
    for (const ProjectedCase& c : kRotated) {
      SCOPED_TRACE(str("rotated ", case_of(c).name, ' ', name_of(compute)));
      expect_close(run_on(case_of(c), kDevice, DType::f32, compute), expected(c, compute, true), tolerance);
      if (HasFatalFailure()) return;
    }
    for (const ProjectedCase& c : {kWide, kLong})
      expect_close(run_on(case_of(c), kDevice, DType::f32, compute), expected(c, compute, false), tolerance);
  }
  expect_close(run_on(case_of(kProjected[0]), kDevice, DType::f32, DType::f32),
               expected(kProjected[0], DType::f32, false), 1e-4);
}

TEST_F(DeviceProjections, SameBitsInEveryRun) {
  for (const size_t k : {0u, 1u, 5u})
    EXPECT_EQ(run_on(case_of(kProjected[k]), kDevice, DType::f32, DType::bf16),
              run_on(case_of(kProjected[k]), kDevice, DType::f32, DType::bf16));
}

// A bias of scores has a gradient beside those of the rounded operands.
TEST_F(DeviceProjections, WithABiasOfScores) {
  const ProjectedCase plain{{{40, 3}, {150, 9}, 2, 2, 5}, true};
  const auto results = [&](Device device, bool rounds) {
    Place place(device, DType::bf16);
    const OpCase c = case_of(plain);
    Vars leaves;
    for (size_t i = 0; i < c.inputs.size(); ++i) leaves.push_back(place.leaf(f64_tensor(c.inputs[i], i + 1)));
    const Vars v = small(place.ctx, leaves);
    const Var bias = place.leaf(f64_tensor({2, 40, 150}, 9));
    AttentionOptions o;
    o.heads = 2;
    o.bias = bias;
    const auto projected = [&](const Var& x, const Var& w, const Var& b) {
      return add(place.ctx, with_rounded_value(place.ctx, linear(place.ctx, x, w, Var())), b);
    };
    const Segments rows = Segments::of(plain.sizes.queries), keys = Segments::of(plain.sizes.keys);
    const Var y = rounds
                      ? attention(place.ctx, projected(v[0], v[2], v[3]), projected(v[1], v[4], v[5]), rows, keys, o)
                      : attention(place.ctx, Projection{v[0], v[2], v[3]}, Projection{v[1], v[4], v[5]}, rows, keys, o);
    const Var out = linear(place.ctx, y, v[6], Var());
    place.tape.backward(place.ctx, sum(place.ctx, out));
    std::vector<Values> all{place.values(out.value()), place.gradient(bias)};
    for (const Var& x : leaves) all.push_back(place.gradient(x));
    return all;
  };
  expect_close(results(kDevice, false), results({}, true), 0.02);
}

Var attended(Place& place, const ProjectedCase& c, Vars& v) {
  const OpCase op = case_of(c);
  v.clear();
  for (size_t i = 0; i < op.inputs.size(); ++i) v.push_back(place.leaf(f64_tensor(op.inputs[i], i + 1)));
  AttentionOptions o;
  o.heads = c.sizes.heads;
  o.kv_heads = c.sizes.kv_heads;
  const Projection first{v[0], v[2], v[3]}, second{v[1], v[4], v[5]};
  const Segments rows = Segments::of(c.sizes.queries);
  return c.across ? attention(place.ctx, first, second, rows, Segments::of(c.sizes.keys), o)
                  : attention(place.ctx, first, rows, o);
}

TEST_F(DeviceProjections, ShapeAndPrecisionDecide) {
  const auto type_of = [](Device device, DType compute, const ProjectedCase& c) {
    Place place(device, compute);
    Vars v;
    return attended(place, c, v).value().dtype();
  };
  for (const DType compute : {DType::bf16, DType::f16}) {
    for (const ProjectedCase& c : kProjected) EXPECT_EQ(type_of(kDevice, compute, c), compute);
    for (const ProjectedCase& c : {kWide, kLong}) EXPECT_EQ(type_of(kDevice, compute, c), DType::f32);
    EXPECT_EQ(type_of({}, compute, kProjected[0]), DType::f32);
  }
  EXPECT_EQ(type_of(kDevice, DType::f32, kProjected[0]), DType::f32);
  EXPECT_EQ(type_of(kDevice, DType::f64, kProjected[0]), DType::f64);
}

// Nothing is converted. The operands and the result are kept in 16 bits, and the sums of exponentials.
TEST_F(DeviceProjections, AreStoredOnce) {
  Place place(kDevice, DType::bf16);
  place.ctx.allocator = Allocator::counting(place.ctx.allocator);
  const Segments rows = Segments::of(std::vector<int64_t>{27, 5});
  const auto leaf = [&](const Shape& shape) { return place.leaf(f64_tensor(shape, 1)); };
  const Var x = leaf({32, 24}), w = leaf({192, 24}), b = leaf({192}), out = leaf({24, 64});
  AttentionOptions o;
  o.heads = 2;
  const auto layer = [&] { return attention(place.ctx, Projection{x, w, b}, rows, o); };
  (void)linear(place.ctx, layer(), out, Var());  // rounds the weights and x
  place.tape.clear();
  const int64_t before = place.ctx.allocator->stats().total;
  Var y;
  EXPECT_EQ(launches_of([&] { y = layer(); }), (Launches{{"attention_forward_sentences", 1}, {"gemm", 1}}));
  const int64_t begins = 3 * 8;
  EXPECT_EQ(place.ctx.allocator->stats().total - before, 32 * (192 + 64) * 2 + 32 * 2 * 4 + begins);
  const Var loss = sum(place.ctx, linear(place.ctx, y, out, Var()));
  const Launches backward = launches_of([&] { place.tape.backward(place.ctx, loss); });
  EXPECT_EQ(backward.at("attention_backward_sentences"), 1);
  EXPECT_EQ(backward.at("gemm"), 4);
  EXPECT_EQ(backward.at("convert"), 1);  // the gradient of sum()
}

// Frozen weights get no gradient, and the others get all of theirs.
TEST_F(DeviceProjections, GradientsThatAreNotNeededAreNotComputed) {
  for (const std::vector<size_t>& frozen : {std::vector<size_t>{0, 2, 3}, {0, 1, 4, 5}, {6}}) {
    const auto results = [&](Device device, bool rounds) {
      Place place(device, DType::bf16);
      const OpCase c = case_of(kProjected[0], rounds);
      Vars v;
      for (size_t i = 0; i < c.inputs.size(); ++i)
        v.push_back(place.leaf(f64_tensor(c.inputs[i], i + 1), std::count(frozen.begin(), frozen.end(), i) == 0));
      const Var y = add(place.ctx, c.result(place.ctx, v), c.result(place.ctx, v));
      place.tape.backward(place.ctx, sum(place.ctx, y));
      std::vector<Values> out{place.values(y.value())};
      for (const Var& leaf : v) out.push_back(place.gradient(leaf));
      for (const size_t i : frozen) EXPECT_TRUE(v[i].grad().empty()) << i;
      return out;
    };
    expect_close(results(kDevice, false), results({}, true), 0.02);
  }
}

}  // namespace
}  // namespace lmx::testing
