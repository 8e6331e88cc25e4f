// Linear layers, dropout, the normalisations and rotary embeddings on a CUDA device against the CPU: rows for a warp
// and for a block, rows that shared memory holds and longer ones, and sums over one part and over many. The normalised
// residual connection also on the CPU, against the ops that it consists of.
#include "device.h"
#include "ops/device_values.h"

namespace lmx::testing {
namespace {

class DeviceLayers : public OnDevice {};

// (rows, columns); 9000 columns are too long for the shared memory of every kernel, 3000 for some. 516 and 1028 are
// just too many for the registers that a warp uses for rows of 512 and 1024.
const Shape kShapes[] = {{1, 1},    {3, 5},    {9, 32},   {6, 128},  {5, 129}, {2, 516},
                         {2, 1000}, {2, 1028}, {3, 3000}, {2, 9000}, {0, 7},   {2, 3, 40}};
// Sums over the rows have parts of 64 rows. A thread sums one column, or four if their number is a multiple of 4.
const Shape kTall[] = {{31, 3}, {33, 3}, {65, 130}, {130, 132}, {4100, 3}};

void expect_equal_layers(const OpCase& c) {
  expect_equal(c, DType::f64, 1e-12);
  expect_equal(c, DType::f32, 5e-5);
}

std::vector<Shape> all_sizes() {
  std::vector<Shape> all(std::begin(kShapes), std::end(kShapes));
  all.insert(all.end(), std::begin(kTall), std::end(kTall));
  return all;
}

// On a device the product adds the bias (f32), or is added to it (f64).
TEST_F(DeviceLayers, LinearWithABias) {
  for (const Shape& x : {Shape{1, 1}, {3, 5}, {130, 7}, {2, 3, 64}, {0, 4}, {3, 0}}) {
    for (const int64_t n : {1, 6, 33}) {
      const OpCase c{"linear",
                     str(x, " to ", n),
                     [](Context& ctx, const Vars& v) { return linear(ctx, v[0], v[1], v[2]); },
                     {x, {n, x[x.rank() - 1]}, {n}}};
      expect_equal_layers(c);
      for (const DType compute : {DType::bf16, DType::f16}) expect_equal(c, DType::f32, 5e-5, compute);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceLayers, LinearIsOneLaunch) {
  Place place(kDevice, DType::f32);
  const Var x = place.leaf(f64_tensor({9, 8}, 1)), w = place.leaf(f64_tensor({4, 8}, 2)),
            b = place.leaf(f64_tensor({4}, 3));
  const DeviceCounts before = cuda_device(0).counts();
  linear(place.ctx, x, w, b);
  EXPECT_EQ(cuda_device(0).counts().since(before).launches, (std::map<std::string, int64_t, std::less<>>{{"gemm", 1}}));
}

// The launches of a linear layer from k to 4 columns, without conversions.
std::map<std::string, int64_t, std::less<>> launches_of_linear(DType compute, int64_t k) {
  Place place(kDevice, compute);
  const Var x = place.leaf(f64_tensor({9, k}, 1)), w = place.leaf(f64_tensor({4, k}, 2)),
            b = place.leaf(f64_tensor({4}, 3));
  const DeviceCounts before = cuda_device(0).counts();
  const Var y = linear(place.ctx, x, w, b);
  auto launches = cuda_device(0).counts().since(before).launches;
  launches.erase("convert");
  EXPECT_EQ(place.values(y.value()), place.values(add(place.ctx, linear(place.ctx, x, w, Var()), b).value()));
  return launches;
}

// If cuBLASLt has no product with a bias, the product is added to the bias. A shape is asked for once, so each case has
// its own number of columns.
TEST_F(DeviceLayers, ALinearWithoutAProductWithABiasHasTheSameBits) {
  if (!emulates_device()) GTEST_SKIP() << "no emulated device";
  int64_t k = 301;
  for (const char* refusal : {"bias", "no_bias"}) {
    for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
      SCOPED_TRACE(str(refusal, ' ', name_of(compute)));
      const std::map<std::string, int64_t, std::less<>> fused{{"gemm", 1}}, apart{{"copy", 1}, {"gemm", 1}};
      {
        const EmulatedError error(refusal);
        EXPECT_EQ(launches_of_linear(compute, k), apart);
        expect_equal({"linear",
                      str(k),
                      [](Context& ctx, const Vars& v) { return linear(ctx, v[0], v[1], v[2]); },
                      {{9, k}, {4, k}, {4}}},
                     DType::f32, 5e-5, compute);
      }
      EXPECT_EQ(launches_of_linear(compute, k), apart);  // the answer for this shape is kept
      EXPECT_EQ(launches_of_linear(compute, k + 100), fused);
      ++k;
    }
  }
}

TEST_F(DeviceLayers, LayerNorm) {
  for (const Shape& x : all_sizes()) {
    const Shape d{x[x.rank() - 1]};
    expect_equal_layers({"layer_norm",
                         str(x),
                         [](Context& c, const Vars& v) { return layer_norm(c, v[0], v[1], v[2], 1e-2); },
                         {x, d, d}});
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeviceLayers, RmsNorm) {
  for (const Shape& x : all_sizes()) {
    const Shape d{x[x.rank() - 1]};
    expect_equal_layers(
        {"rms_norm", str(x), [](Context& c, const Vars& v) { return rms_norm(c, v[0], v[1], 1e-2); }, {x, d}});
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeviceLayers, WeightNorm) {
  for (const Shape& v : kShapes) {
    if (v.rank() != 2) continue;
    expect_equal_layers(
        {"weight_norm", str(v), [](Context& c, const Vars& x) { return weight_norm(c, x[0], x[1]); }, {v, {v[0]}}});
    if (HasFatalFailure()) return;
  }
  // A row of zeros stays zero and has no gradient.
  const OpCase zeros{"weight_norm",
                     "zeros",
                     [](Context& c, const Vars& x) {
                       return weight_norm(c, multiply(c, x[0], Var(c.zeros({1}, x[0].value().dtype()))), x[1]);
                     },
                     {{3, 70}, {3}}};
  expect_equal_layers(zeros);
}

// The masks are equal in every bit, so no tolerance is needed.
TEST_F(DeviceLayers, Dropout) {
  for (const Shape& x : {Shape{1, 1}, Shape{3, 63}, Shape{2, 64}, Shape{5, 65}, Shape{2, 3, 200}, Shape{0, 7}}) {
    std::vector<uint64_t> ids;
    for (int64_t i = 0; i < x.numel() / x[x.rank() - 1]; ++i) ids.push_back((uint64_t{1} << 33) + 7 * ids.size());
    const OpCase by_row{
        "dropout", str(x), [=](Context& c, const Vars& v) { return dropout(c, v[0], 0.3, RandomKey(5), ids); }, {x}};
    const OpCase whole{"dropout",
                       str(x, " whole"),
                       [](Context& c, const Vars& v) { return dropout(c, v[0], 0.7, RandomKey(6)); },
                       {x}};
    for (const OpCase& c : {by_row, whole}) {
      expect_equal(c, DType::f64, 0);
      expect_equal(c, DType::f32, 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceLayers, Rope) {
  for (const bool interleaved : {false, true}) {
    for (const Shape& x : {Shape{1, 2}, Shape{7, 36}, Shape{40, 192}, Shape{0, 12}}) {
      const std::vector<int64_t> lengths{x[0]};
      const OpCase c{"rope",
                     str(x, interleaved ? " interleaved" : ""),
                     [=](Context& ctx, const Vars& v) {
                       RopeOptions o;
                       o.interleaved = interleaved;
                       o.heads = x[1] % 6 == 0 ? 3 : 1;
                       o.rotated = o.heads == 3 ? 2 : 0;
                       return rope(ctx, v[0], positions_of(Segments::of(lengths)), o);
                     },
                     {x}};
      expect_equal_layers(c);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows of gates and values that quads divide, and others.
TEST_F(DeviceLayers, Swiglu) {
  for (const Shape& shape : all_sizes()) {
    Shape x = shape;
    x[x.rank() - 1] *= 2;
    expect_equal_layers({"swiglu", str(x), [](Context& ctx, const Vars& v) { return swiglu(ctx, v[0]); }, {x}});
    if (HasFatalFailure()) return;
  }
}

// ---- residual_norm: in f32 and f64, and on the CPU, it consists of the ops linear, dropout, add and layer_norm; on a
// device in bf16 and f16 it is one kernel, whose only further rounding is that of the branch's product

// Rows of one warp, of several, with idle threads and without quads; a row that is too wide for the kernels; and more
// rows than the blocks of backward compute at once.
const LayerSizes kResiduals[] = {{{3, 5}, 0, 1},    {{4, 6}, 0, 20},   {{5, 8}, 0, 64},    {{9, 4}, 0, 130},
                                 {{3, 8}, 0, 516},  {{7, 8}, 0, 1024}, {{2, 2, 3}, 0, 72}, {{2, 5}, 0, 4096},
                                 {{2, 5}, 0, 4097}, {{2300, 2}, 0, 8}, {{0, 4}, 0, 6}};

// A residual connection whose branch is a linear layer from s.x to s.n. Leaves: the branch's input, weight and bias, x,
// and the gain and bias of the norm.
OpCase residual_case(const LayerSizes& s, double p, bool biased = true) {
  const int64_t k = s.x[s.x.rank() - 1];
  Shape x = s.x;
  x[x.rank() - 1] = s.n;
  return {"residual_norm",
          str(s.x, " to ", s.n, ", p ", p, biased ? "" : ", no bias"),
          [=](Context& c, const Vars& v) {
            const Branch branch = linear_branch(c, v[0], v[1], biased ? v[2] : Var());
            return residual_norm(c, {v[3], branch, v[4], v[5], 1e-2}, p, RandomKey(5), row_ids_of(s.x));
          },
          {s.x, {s.n, k}, {s.n}, x, {s.n}, {s.n}}};
}

// The same by separate ops. rounds: the product is rounded before the bias is added.
OpCase residual_ops(const LayerSizes& s, double p, bool rounds, bool biased = true) {
  OpCase c = residual_case(s, p, biased);
  c.result = [=](Context& ctx, const Vars& v) {
    Var branch = linear(ctx, v[0], v[1], biased && !rounds ? v[2] : Var());
    if (rounds) branch = with_rounded_value(ctx, branch);
    if (rounds && biased) branch = add(ctx, branch, v[2]);
    const Var sum = add(ctx, v[3], dropout(ctx, branch, p, RandomKey(5), row_ids_of(s.x)));
    return layer_norm(ctx, sum, v[4], v[5], 1e-2);
  };
  return c;
}

void expect_residuals_equal_to_the_separate_ops(Device device, std::initializer_list<DType> computes) {
  for (const LayerSizes& s : kResiduals) {
    for (const DType compute : computes) {
      const DType type = compute == DType::f64 ? DType::f64 : DType::f32;
      const OpCase c = residual_case(s, 0.3);
      SCOPED_TRACE(str(c.name, ' ', name_of(compute)));
      expect_close(run_on(c, device, type, compute), run_on(residual_ops(s, 0.3, false), device, type, compute), 0);
      if (::testing::Test::HasFatalFailure()) return;
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

// The CPU's separate ops with the rounding of the product. Gradients that are operands of products are rounded by both,
// sometimes to the other neighbour.
TEST_F(DeviceResidualNorm, EqualsTheSeparateOpsWithARoundedProduct) {
  for (const LayerSizes& s : kResiduals) {
    const bool rounds = s.n <= 4096;  // wider rows are computed by the separate ops
    for (const auto& [compute, neighbour] : {std::pair{DType::bf16, 1e-2}, {DType::f16, 1e-3}}) {
      for (const double p : {0.0, 0.3}) {
        for (const bool biased : {true, false}) {
          for (const int64_t shift : {0, 1}) {
            const OpCase c = residual_case(s, p, biased);
            SCOPED_TRACE(str(c.name, ' ', name_of(compute), " shifted by ", shift));
            auto got = run_on(c, kDevice, DType::f32, compute, shift);
            auto want = run_on(residual_ops(s, p, rounds, biased), {}, DType::f32, compute);
            for (const size_t product : {1, 2}) {
              expect_close({got[product]}, {want[product]}, neighbour);
              got[product] = want[product] = {};
            }
            expect_close(got, want, 2e-4);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// The gradients of x from both of its uses are added without further kernels. Beside its result, its rounded copy and
// the statistics of each row, the branch's product is kept, but neither the sum nor the mask.
TEST_F(DeviceResidualNorm, IsTwoLaunchesForwardAndFourBackward) {
  using Launches = std::map<std::string, int64_t, std::less<>>;
  Place place(kDevice, DType::bf16);
  place.ctx.allocator = Allocator::counting(place.ctx.allocator);
  const auto leaf = [&](const Shape& shape) { return place.leaf(f64_tensor(shape, 1)); };
  const Var w = leaf({64, 64}), b = leaf({64}), gain = leaf({64}), bias = leaf({64}), x = leaf({5, 64});
  const auto layer = [&](const Var& in) {
    return residual_norm(place.ctx, {in, linear_branch(place.ctx, in, w, b), gain, bias}, 0.3, RandomKey(5),
                         row_ids_of({5, 64}));
  };
  const Var first = layer(x);
  const auto launches_of = [](auto&& work) {
    const DeviceCounts before = cuda_device(0).counts();
    work();
    return cuda_device(0).counts().since(before).launches;
  };
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

// The leaves of residual_case() that are frozen get no gradient. The others get all of theirs, also if the connection
// is computed twice.
TEST_F(DeviceResidualNorm, GradientsThatAreNotNeededAreNotComputed) {
  const LayerSizes s{{5, 8}, 0, 24};
  for (const std::vector<size_t>& frozen : {std::vector<size_t>{1, 2, 3, 4}, {0, 1, 5}}) {
    const auto results = [&](Device device, const OpCase& c) {
      Place place(device, DType::bf16);
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
    expect_close(results(kDevice, residual_case(s, 0.3)), results({}, residual_ops(s, 0.3, true)), 1e-2);
  }
}

}  // namespace
}  // namespace lmx::testing
