// Kernels of a device that round their result for the next matrix product while they write it: bit-equal to rounding it
// in a kernel of its own.
#include <cstring>

#include "device.h"
#include "lmx/array_ops.h"
#include "lmx/operand.h"
#include "ops/common.h"
#include "ops/gradcheck.h"

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
