// Linear layers, dropout, the normalisations and rotary embeddings on a CUDA device against the CPU:
// rows for a warp and for a block, rows that shared memory holds and longer ones, and sums over one part and over many.
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

}  // namespace
}  // namespace lmx::testing
