// residual_norm and residual_sum: they consist of the ops linear, dropout, add, and layer_norm or rms_norm, or they are
// one kernel: on a device in bf16 and f16, and in bf16 on a CPU that multiplies it. Its only further roundings are
// those of the branch's product, and of a norm that is an operand, with its gradient.
#include <algorithm>

#include "device.h"
#include "lmx/array_ops.h"
#include "lmx/parallel.h"
#include "ops/device_values.h"

namespace lmx::testing {
namespace {

// Rows of one warp, of several, with idle threads and without quads; a row that is too wide for the kernels; and more
// rows than the blocks of backward compute at once.
struct ResidualSizes {
  Shape x;    // the branch's input
  int64_t n;  // columns of the connection
};
const ResidualSizes kResiduals[] = {{{3, 5}, 1},    {{4, 6}, 20},   {{5, 8}, 64},    {{9, 4}, 130},
                                    {{3, 8}, 516},  {{7, 8}, 1024}, {{2, 2, 3}, 72}, {{2, 5}, 4096},
                                    {{2, 5}, 4097}, {{2300, 2}, 8}, {{0, 4}, 6}};

// A residual connection whose branch is a linear layer from s.x to s.n.
struct Residual {
  ResidualSizes s;
  double p = 0.3;
  bool biased = true;  // the linear layer
  bool rms = false;
  bool before = false;   // residual_sum(); its norm is the operand of a linear layer
  bool branched = true;  // without a branch, residual_sum() is the norm
  // Whether one kernel computes it. Wider rows are computed by the separate ops.
  bool rounds(Device device, DType compute) const {
    const bool on_cpu = compute == DType::bf16 && !multiplies_in_f32(compute);
    return s.n <= 4096 && (device.kind == Device::Kind::cpu ? on_cpu : size_of(compute) == 2);
  }
};

// Leaves: the branch's input, weight and bias, x, the gain and bias of the norm, and the weight of the layer that reads
// it.
OpCase residual_case(const Residual& r) {
  const ResidualSizes& s = r.s;
  const int64_t k = s.x[s.x.rank() - 1];
  Shape x = s.x;
  x[x.rank() - 1] = s.n;
  return {"residual",
          str(s.x, " to ", s.n, ", p ", r.p, r.biased ? "" : ", no bias", r.rms ? ", rms" : "", r.before ? ", sum" : "",
              r.branched ? "" : ", no branch"),
          [=](Context& c, const Vars& v) {
            Branch branch;
            if (r.branched) branch = linear_branch(c, v[0], v[1], r.biased ? v[2] : Var());
            const ResidualInputs in{v[3], branch, v[4], r.rms ? Var() : v[5], 1e-2};
            if (!r.before) return residual_norm(c, in, r.p, RandomKey(5), row_ids_of(s.x));
            const NormedSum out = residual_sum(c, in, true, r.p, RandomKey(5), row_ids_of(s.x));
            return concat(c, {out.sum, linear(c, out.norm, v[6], {})}, -1);
          },
          {s.x, {s.n, k}, {s.n}, x, {s.n}, {s.n}, {3, s.n}}};
}

// The same by separate ops. rounds: with the roundings of a device.
OpCase residual_ops(const Residual& r, bool rounds) {
  OpCase c = residual_case(r);
  c.result = [=](Context& ctx, const Vars& v) {
    Var sum = v[3];
    if (r.branched) {
      Var branch = linear(ctx, v[0], v[1], r.biased && !rounds ? v[2] : Var());
      if (rounds) branch = with_rounded_value(ctx, branch);
      if (rounds && r.biased) branch = add(ctx, branch, v[2]);
      sum = add(ctx, sum, dropout(ctx, branch, r.p, RandomKey(5), row_ids_of(r.s.x)));
    }
    Var norm = r.rms ? rms_norm(ctx, sum, v[4], 1e-2) : layer_norm(ctx, sum, v[4], v[5], 1e-2);
    if (!r.before) return norm;
    if (rounds) norm = with_rounded_gradient(ctx, norm);
    return concat(ctx, {sum, linear(ctx, norm, v[6], {})}, -1);
  };
  return c;
}

// All kinds of connections of these sizes.
std::vector<Residual> residuals_of(const ResidualSizes& s) {
  return {{s},
          {s, 0, false},
          {.s = s, .rms = true},
          {.s = s, .before = true},
          {.s = s, .p = 0, .biased = false, .rms = true, .before = true},
          {.s = s, .rms = true, .before = true},
          {.s = s, .before = true, .branched = false},
          {.s = s, .rms = true, .before = true, .branched = false}};
}

void expect_residuals_equal_to_the_separate_ops(Device device, std::initializer_list<DType> computes) {
  for (const ResidualSizes& s : kResiduals) {
    for (const Residual& r : residuals_of(s)) {
      for (const DType compute : computes) {
        if (r.rounds(device, compute)) continue;
        const DType type = compute == DType::f64 ? DType::f64 : DType::f32;
        const OpCase c = residual_case(r);
        SCOPED_TRACE(str(c.name, ' ', name_of(compute)));
        expect_close(run_on(c, device, type, compute), run_on(residual_ops(r, false), device, type, compute), 0);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

class DeviceResidualNorm : public OnDevice {};

TEST(ResidualNorm, EqualsTheSeparateOps) {
  expect_residuals_equal_to_the_separate_ops({}, {DType::f32, DType::f64, DType::bf16, DType::f16});
}

TEST_F(DeviceResidualNorm, EqualsTheSeparateOpsInF32AndF64) {
  expect_residuals_equal_to_the_separate_ops(kDevice, {DType::f32, DType::f64});
}

// Against the CPU's separate ops with the same roundings. Values that are operands of products, or results of one, are
// rounded by both, sometimes to the other neighbour: gradients of the branch, a norm with its gradient, and rarely the
// branch itself, on which all other results depend.
void expect_residual_with_a_rounded_product(const Residual& r, Device device, DType compute, int64_t shift) {
  const double neighbour = compute == DType::bf16 ? 1e-2 : 1e-3;
  const OpCase c = residual_case(r);
  SCOPED_TRACE(str(c.name, ' ', name_of(compute), " shifted by ", shift));
  auto got = run_on(c, device, DType::f32, compute, shift);
  auto want = run_on(residual_ops(r, r.rounds(device, compute)), {}, DType::f32, compute);
  // Those of the branch's input and weight; for a norm that is an operand, all, by which its columns are added.
  for (const size_t product : r.before ? std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7} : std::vector<size_t>{1, 2}) {
    expect_close({got[product]}, {want[product]}, r.before ? 4 * neighbour : neighbour);
    got[product] = want[product] = {};
  }
  expect_close(got, want, neighbour);
  for (size_t k = 0; k < got.size(); ++k) {
    double squares = 0, distance = 0;
    for (size_t i = 0; i < got[k].size(); ++i) {
      squares += want[k][i] * want[k][i];
      distance += (got[k][i] - want[k][i]) * (got[k][i] - want[k][i]);
    }
    EXPECT_LE(distance, 4e-8 * std::max(squares, static_cast<double>(got[k].size()))) << "result " << k;
  }
}

TEST_F(DeviceResidualNorm, EqualsTheSeparateOpsWithARoundedProduct) {
  for (const ResidualSizes& s : kResiduals)
    for (const Residual& r : residuals_of(s))
      for (const DType compute : {DType::bf16, DType::f16})
        for (const int64_t shift : {0, 1}) {
          expect_residual_with_a_rounded_product(r, kDevice, compute, shift);
          if (HasFatalFailure()) return;
        }
}

TEST(ResidualNorm, EqualsTheSeparateOpsWithARoundedProduct) {
  if (multiplies_in_f32(DType::bf16)) GTEST_SKIP() << "this CPU does not multiply bf16";
  for (const ResidualSizes& s : kResiduals)
    for (const Residual& r : residuals_of(s)) {
      expect_residual_with_a_rounded_product(r, {}, DType::bf16, 0);
      if (HasFatalFailure()) return;
    }
}

TEST(ResidualNorm, SameBitsForAnyNumberOfThreads) {
  const int before = num_threads();
  for (const Residual& r : residuals_of({{2300, 2}, 8})) {
    set_num_threads(1);
    const std::vector<Values> one = run_on(residual_case(r), {}, DType::f32, DType::bf16);
    set_num_threads(3);
    EXPECT_EQ(run_on(residual_case(r), {}, DType::f32, DType::bf16), one) << residual_case(r).name;
  }
  set_num_threads(before);
}

// The gradients of x from both of its uses are added without further kernels. Beside its result, its rounded copy and
// the statistics of each row, the branch's product is kept, but neither the sum nor the mask.
TEST_F(DeviceResidualNorm, IsTwoLaunchesForwardAndFourBackward) {
  Place place(kDevice, DType::bf16);
  place.ctx.allocator = Allocator::counting(place.ctx.allocator);
  const auto leaf = [&](const Shape& shape) { return place.leaf(f64_tensor(shape, 1)); };
  const Var w = leaf({64, 64}), b = leaf({64}), gain = leaf({64}), bias = leaf({64}), x = leaf({5, 64});
  const auto layer = [&](const Var& in) {
    return residual_norm(place.ctx, {in, linear_branch(place.ctx, in, w, b), gain, bias}, 0.3, RandomKey(5),
                         row_ids_of({5, 64}));
  };
  const Var first = layer(x);
  Var second;
  const int64_t before = place.ctx.allocator->stats().total;
  EXPECT_EQ(launches_of([&] { second = layer(first); }), (Launches{{"gemm", 1}, {"residual_norm", 1}}));
  EXPECT_EQ(place.ctx.allocator->stats().total - before, 5 * 64 * (4 + 2 + 2) + 5 * 2 * 4);
  const Var loss = sum(place.ctx, second);
  const Launches backward = launches_of([&] { place.tape.backward(place.ctx, loss); });
  EXPECT_EQ(backward.at("residual_norm_backward"), 2 * 2);
  EXPECT_EQ(backward.at("gemm"), 2 * 2);
  EXPECT_EQ(backward.at("copy"), 1);  // of the gradient of sum()
  for (const char* none : {"convert", "add", "add_gradient", "column_sums", "dropout"})
    EXPECT_EQ(backward.count(none), 0u) << none;
}

// The same for a stream of sums: no gradient is added by a separate kernel. The norm exists once, in 16 bits.
TEST_F(DeviceResidualNorm, ASumIsTwoLaunchesForwardAndFourBackward) {
  Place place(kDevice, DType::bf16);
  place.ctx.allocator = Allocator::counting(place.ctx.allocator);
  const auto leaf = [&](const Shape& shape) { return place.leaf(f64_tensor(shape, 1)); };
  const Var w = leaf({64, 64}), gain = leaf({64}), x = leaf({5, 64});
  const auto layer = [&](const NormedSum& before) {
    return residual_sum(place.ctx, {before.sum, linear_branch(place.ctx, before.norm, w, {}), gain, {}}, true);
  };
  const NormedSum first = layer(residual_sum(place.ctx, {x, {}, gain, {}}, true));
  NormedSum second;
  const int64_t before = place.ctx.allocator->stats().total;
  EXPECT_EQ(launches_of([&] { second = layer(first); }), (Launches{{"gemm", 1}, {"residual_norm", 1}}));
  EXPECT_EQ(place.ctx.allocator->stats().total - before, 5 * 64 * (4 + 2 + 2) + 5 * 2 * 4);
  const Var loss = add(place.ctx, sum(place.ctx, second.sum), sum(place.ctx, linear(place.ctx, second.norm, w, {})));
  const Launches backward = launches_of([&] { place.tape.backward(place.ctx, loss); });
  EXPECT_EQ(backward.at("residual_norm_backward"), 2 * 3);
  EXPECT_EQ(backward.at("gemm"), 2 * 3);
  EXPECT_EQ(backward.at("convert"), 1);  // of the gradient of sum()
  for (const char* none : {"add_gradient", "column_sums", "dropout"}) EXPECT_EQ(backward.count(none), 0u) << none;
}

// The leaves of residual_case() that are frozen get no gradient. The others get all of theirs, also if the connection
// is computed twice.
void expect_needed_gradients(Device device) {
  const Residual residual{{{5, 8}, 24}};
  for (const std::vector<size_t>& frozen : {std::vector<size_t>{1, 2, 3, 4}, {0, 1, 5}}) {
    const auto results = [&](Device on, const OpCase& c) {
      Place place(on, DType::bf16);
      Vars v;
      for (size_t i = 0; i < c.inputs.size(); ++i)
        v.push_back(place.leaf(f64_tensor(c.inputs[i], i + 1), std::count(frozen.begin(), frozen.end(), i) == 0));
      const Var y = add(place.ctx, c.result(place.ctx, v), c.result(place.ctx, v));
      const Var weights = place.leaf(f64_tensor(y.shape(), 99), false);
      place.tape.backward(place.ctx, sum(place.ctx, multiply(place.ctx, y, weights)));
      std::vector<Values> out{place.values(y.value())};
      for (const Var& x : v) out.push_back(place.gradient(x));
      for (const size_t i : frozen) EXPECT_TRUE(v[i].grad().empty()) << i;
      return out;
    };
    expect_close(results(device, residual_case(residual)),
                 results({}, residual_ops(residual, residual.rounds(device, DType::bf16))), 1e-2);
  }
}

TEST(ResidualNorm, GradientsThatAreNotNeededAreNotComputed) {
  expect_needed_gradients({});
}

TEST_F(DeviceResidualNorm, GradientsThatAreNotNeededAreNotComputed) {
  expect_needed_gradients(kDevice);
}

}  // namespace
}  // namespace lmx::testing
