// The ops on a CUDA device against the CPU: results and gradients of every case of the gradient checks, in f64 and f32;
// and kernels that exist on a device only.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "device.h"
#include "lmx/array_ops.h"
#include "lmx/operand.h"
#include "ops/array/broadcast.h"
#include "ops/common.h"
#include "ops/device_attention_cases.h"
#include "ops/gradcheck.h"
#include "ops/losses/top_k.h"

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
  add_case("swiglu", [](Context& c, const Vars& v) { return swiglu(c, v[0]); }, {{3, 16}});
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

// The most probable entries of rows of logits on a CUDA device: the same as on the CPU, ties included.

namespace lmx::ops {
namespace {

class DeviceTopK : public lmx_test::DeviceTest {
 protected:
  static std::vector<TopRow> on(Device::Kind kind, const std::vector<float>& values, int64_t n, int64_t k,
                                const std::vector<int32_t>& without) {
    Context ctx = lmx_test::context_on(kind);
    const auto rows = static_cast<int64_t>(values.size()) / n;
    return top_rows(ctx, ctx.upload(Tensor::from<float>(ctx.host, {rows, n}, values)), k, without, 1);
  }
  static void expect_equal(const std::vector<float>& values, int64_t n, int64_t k,
                           const std::vector<int32_t>& without) {
    const auto device = on(Device::Kind::cuda, values, n, k, without),
               cpu = on(Device::Kind::cpu, values, n, k, without);
    ASSERT_EQ(device.size(), cpu.size());
    for (size_t r = 0; r < cpu.size(); ++r) {
      EXPECT_EQ(device[r].wanted, cpu[r].wanted);
      EXPECT_EQ(std::isfinite(device[r].log_sum_exp), std::isfinite(cpu[r].log_sum_exp)) << "row " << r;
      if (std::isfinite(cpu[r].log_sum_exp)) {
        EXPECT_NEAR(device[r].log_sum_exp, cpu[r].log_sum_exp, 1e-5) << "row " << r;
      }
      ASSERT_EQ(device[r].entries.size(), cpu[r].entries.size()) << "row " << r;
      for (size_t e = 0; e < cpu[r].entries.size(); ++e) {
        EXPECT_EQ(device[r].entries[e].logit, cpu[r].entries[e].logit) << r << ' ' << e;
        EXPECT_EQ(device[r].entries[e].id, cpu[r].entries[e].id) << r << ' ' << e;
      }
    }
  }
  // Values of `levels` kinds, so that few levels make many ties.
  static std::vector<float> drawn(int64_t count, int levels) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(std::floor(RandomKey(3).uniform(static_cast<uint64_t>(i)) * levels)) / 8 - 2);
    return values;
  }
};

TEST_F(DeviceTopK, EqualsTheCpusForFewAndManyTies) {
  for (const int levels : {3, 1'000'000}) {
    expect_equal(drawn(4 * 37, levels), 37, 8, {0});
    expect_equal(drawn(3 * 2500, levels), 2500, 4, {});
    expect_equal(drawn(2 * 5, levels), 5, 9, {1, 3});  // fewer entries than k
  }
}

TEST_F(DeviceTopK, LeavesOutInfiniteValuesAndNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  expect_equal({-kInf, 1, -kInf, 2, -kInf, -kInf, -kInf, -kInf}, 4, 3, {});
  const auto rows = on(Device::Kind::cuda, {0, NAN, 1, kInf, 0, 1}, 3, 1, {});
  for (const TopRow& row : rows) EXPECT_TRUE(std::isnan(row.log_sum_exp));
}

}  // namespace
}  // namespace lmx::ops

// Kernels of a device that round their result for the next matrix product while they write it: bit-equal to rounding it
// in a kernel of its own.

namespace lmx {
namespace {

using Op = std::function<Var(Context&, const Var&)>;

constexpr int64_t kRows = 5, kCols = 24;

Tensor on_device(Context& ctx, const Shape& shape, uint64_t seed) {
  return ctx.upload(testing::f64_tensor(shape, seed).to(DType::f32));
}

Var norm_of_layer(Context& ctx, const Var& x) {
  const Var gain(on_device(ctx, {kCols}, 2));
  return layer_norm(ctx, x, gain, gain);
}

Var norm_of_rms(Context& ctx, const Var& x) {
  return rms_norm(ctx, x, Var(on_device(ctx, {kCols}, 2)));
}

Var self_attention(Context& ctx, const Var& qkv) {
  return attention(ctx, qkv, Segments::of(std::vector<int64_t>{3, 2}), {.heads = 2, .causal = true});
}

// Heads of one column: no store of several elements.
Var attention_of_small_heads(Context& ctx, const Var& qkv) {
  return attention(ctx, qkv, Segments::of(std::vector<int64_t>{3, 2}), {.heads = kCols / 3});
}

Var attention_to(Context& ctx, const Var& kv) {
  const Segments rows = Segments::of(std::vector<int64_t>{3, 2});
  return attention(ctx, Var(on_device(ctx, {kRows, kCols / 2}, 4)), kv, rows, rows, {.heads = 2});
}

Var dropped(Context& ctx, const Var& x) {
  return dropout(ctx, x, 0.5, RandomKey(3));
}

Var turned(Context& ctx, const Var& x) {
  RopeOptions options;
  options.heads = 4;
  options.rotated = 3;
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < x.shape()[0]; ++i) positions.push_back(i);
  return rope(ctx, x, positions, options);
}

struct Producer {
  const char* name;
  Op op;
  bool of_result, of_gradient;  // which it writes
  int64_t cols = kCols;
};

// The result of dropout is usually added, not multiplied. The gradient of a norm's input is added to a residual's. The
// elements of the last two are written one by one, because 5 x 7 is no multiple of 4, and four at once, because masks
// of dropout belong to 64 columns.
const std::vector<Producer>& producers() {
  static const std::vector<Producer> all{
      {"relu", relu, true, true},
      {"silu", silu, true, true},
      {"gelu", gelu, true, true},
      {"gelu_tanh", gelu_tanh, true, true},
      {"layer_norm", norm_of_layer, true, false},
      {"rms_norm", norm_of_rms, true, false},
      {"attention", self_attention, true, true},
      {"attention of small heads", attention_of_small_heads, true, true},
      {"attention to other rows", attention_to, true, true},
      {"rope", turned, true, true, 8},
      {"rope of 8 pairs", turned, true, true, 64},
      {"dropout", dropped, false, true},
      {"gelu of 7 columns", gelu, true, true, 7},
      {"dropout of 64 columns", dropped, false, true, 64},
  };
  return all;
}

bool equal_bits(const Context& ctx, const Tensor& a, const Tensor& b) {
  const Tensor x = copy_to(a, ctx.host), y = copy_to(b, ctx.host);
  return x.dtype() == y.dtype() && x.shape() == y.shape() &&
         std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())) == 0;
}

class DeviceOperand : public lmx_test::DeviceTest {};

// Conversions that a step of `run` starts.
int64_t conversions(const std::function<void()>& run) {
  const DeviceCounts before = cuda_device(0).counts();
  run();
  const auto launches = cuda_device(0).counts().since(before).launches;
  const auto found = launches.find("convert");
  return found == launches.end() ? 0 : found->second;
}

TEST_F(DeviceOperand, OfAResultIsWrittenByItsKernel) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const Producer& producer : producers()) {
      if (!producer.of_result) continue;
      SCOPED_TRACE(producer.name);
      Context ctx = lmx_test::context_on(Device::Kind::cuda, type);
      const Var y = producer.op(ctx, Var(on_device(ctx, {kRows, producer.cols}, 1)));
      Tensor copy;
      EXPECT_EQ(conversions([&] { copy = ops::compute_copy(ctx, y); }), 0);
      EXPECT_TRUE(equal_bits(ctx, copy, to_compute(ctx, y.value())));
    }
}

TEST_F(DeviceOperand, OfAGradientIsWrittenByItsKernel) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const Producer& producer : producers()) {
      if (!producer.of_gradient) continue;
      SCOPED_TRACE(producer.name);
      Context ctx = lmx_test::context_on(Device::Kind::cuda, type);
      Tape tape;
      ctx.tape = &tape;
      const Var leaf(on_device(ctx, {kRows, producer.cols}, 1), true, "leaf");
      const Var x(leaf.value());
      int checks = 0;
      tape.record("check", {leaf}, {x}, [&](Tape&) {
        Tensor operand;
        EXPECT_EQ(conversions([&] { operand = Tape::operand_of_grad(ctx, x); }), 0);
        EXPECT_TRUE(equal_bits(ctx, operand, to_compute(ctx, Tape::grad_of(x))));
        ++checks;
      });
      const Var y = producer.op(ctx, x);
      tape.backward(ctx, sum(ctx, multiply(ctx, y, y)));
      EXPECT_EQ(checks, 1);
    }
}

// A second gradient is added to the first, whose rounded copy is then of no use.
TEST_F(DeviceOperand, OfASumOfGradientsIsRoundedAnew) {
  Context ctx = lmx_test::context_on(Device::Kind::cuda, DType::bf16);
  for (const bool first : {false, true}) {
    Tape tape;
    ctx.tape = &tape;
    const Var leaf(on_device(ctx, {kRows, kCols}, 1), true, "leaf");
    const Var x(leaf.value());
    tape.record("check", {leaf}, {x}, [&](Tape&) {
      EXPECT_TRUE(equal_bits(ctx, Tape::operand_of_grad(ctx, x), to_compute(ctx, Tape::grad_of(x))));
    });
    const Var other = first ? scale(ctx, x, 3) : Var(), y = gelu(ctx, x), last = first ? other : scale(ctx, x, 3);
    tape.backward(ctx, sum(ctx, add(ctx, multiply(ctx, y, y), last)));
  }
}

// The two weights and the input of the first product are all that a feed-forward layer's training step converts.
TEST_F(DeviceOperand, OfALayerAreConvertedOnce) {
  Context ctx = lmx_test::context_on(Device::Kind::cuda, DType::bf16);
  const auto leaf = [&](Shape shape, uint64_t seed) { return Var(on_device(ctx, shape, seed), true, str("w", seed)); };
  const Var x = leaf({kRows, kCols}, 1), up = leaf({4 * kCols, kCols}, 2), down = leaf({kCols, 4 * kCols}, 3);
  Tape tape;
  ctx.tape = &tape;
  EXPECT_EQ(conversions([&] {
              const Var y = linear(ctx, relu(ctx, linear(ctx, x, up, Var())), down, Var());
              tape.backward(ctx, sum(ctx, dropout(ctx, y, 0.5, RandomKey(3))));
            }),
            3);
}

}  // namespace
}  // namespace lmx
