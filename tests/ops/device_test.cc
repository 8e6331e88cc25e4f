// The ops on a CUDA device against the CPU: results and gradients of every case of the gradient checks, in f64 and f32.
#include "ops/array/broadcast.h"
#include "ops/device_attention_cases.h"

namespace lmx::testing {
namespace {

class DeviceOps : public OnDevice {};

TEST_F(DeviceOps, ArrayOpsEqualTheCpu) {
  for (const OpCase& c : all_cases()) {
    expect_equal(c, DType::f64, 1e-12);
    expect_equal(c, DType::f32, 1e-5);
    if (HasFatalFailure()) return;
  }
}

// Operands that begin one element after their memory, as a row of a matrix of three columns does: a kernel that moves
// four neighbouring elements at once cannot do so here. A GPU reports a misaligned address, and the emulated device
// ends the process.
TEST_F(DeviceOps, OperandsMayBeginAtAnyElement) {
  std::vector<OpCase> cases;
  const auto add_case = [&](const char* op, auto f, std::vector<Shape> inputs) {
    cases.push_back({op, "shifted", f, std::move(inputs)});
  };
  add_case("gelu", [](Context& c, const Vars& v) { return gelu(c, v[0]); }, {{3, 8}});
  add_case("multiply", [](Context& c, const Vars& v) { return multiply(c, v[0], v[1]); }, {{3, 8}, {3, 8}});
  add_case("permute", [](Context& c, const Vars& v) { return permute(c, v[0], {1, 0, 2}); }, {{2, 3, 8}});
  add_case("add_tensor",
           [](Context& c, const Vars& v) {
             Tensor total = c.zeros(v[0].shape(), v[0].value().dtype());
             add_tensor(c, total, v[0].value());
             return add(c, Var(total), v[0]);
           },
           {{3, 8}});
  add_case("dropout", [](Context& c, const Vars& v) { return dropout(c, v[0], 0.3, RandomKey(5)); }, {{3, 64}});
  add_case("layer_norm", [](Context& c, const Vars& v) { return layer_norm(c, v[0], v[1], v[2], 1e-2); },
           {{3, 8}, {8}, {8}});
  add_case("rms_norm", [](Context& c, const Vars& v) { return rms_norm(c, v[0], v[1], 1e-2); }, {{3, 8}, {8}});
  add_case("full_softmax",
           [](Context& c, const Vars& v) {
             return full_softmax_loss(c, {v[0], v[1], v[2], i32_tensor({3}, {7, 0, 3})}).loss;
           },
           {{3, 4}, {8, 4}, {8}});
  for (const OpCase& c : cases) {
    expect_equal(c, DType::f64, 1e-12, DType::f64, 1);
    expect_equal(c, DType::f32, 1e-5, DType::f32, 1);
    if (HasFatalFailure()) return;
  }
  // Conversions to 16 bits, and the tiles of attention on tensor cores.
  add_case("linear", [](Context& c, const Vars& v) { return linear(c, v[0], v[1], Var()); }, {{3, 8}, {4, 8}});
  expect_equal(cases.back(), DType::f32, 5e-5, DType::bf16, 1);
  expect_equal(across({{3}, {5}, 1, 1, 8}, 0), DType::f32, 4 * 0x1p-8, DType::bf16, 1);
}

// The sums of long rows and columns are made in parts, of which the last may be shorter.
TEST_F(DeviceOps, LongRowsAndColumnsAreSummedWhole) {
  const auto check = [&](int dim, const Shape& shape) {
    const OpCase c{"sum", "parts", [dim](Context& ctx, const Vars& v) { return sum(ctx, v[0], {dim}); }, {shape}};
    expect_equal(c, DType::f64, 1e-12);
  };
  for (const int64_t n : {64, 65, 127, 130, 1000, 5001}) {
    check(0, Shape{n, 3});
    check(1, Shape{3, n});
    check(1, Shape{2, n, 3});
  }
}

// Rows of four elements that begin at every fifth. No op walks so today.
TEST_F(DeviceOps, CopiedRowsMayBeginAtAnyElement) {
  ops::Walk<1> walk;
  walk.add(3, {5});
  walk.add(4, {1});
  for (const DType type : {DType::f64, DType::f32}) {
    const auto copy = [&](Device device) {
      Place p(device, type);
      return p.values(ops::copied(p.ctx, "copy", p.leaf(f64_tensor({15}, 1)).value(), walk, {3, 4}));
    };
    EXPECT_EQ(copy(kDevice), copy({}));
  }
}

}  // namespace
}  // namespace lmx::testing
