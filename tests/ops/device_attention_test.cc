// Attention on a CUDA device against the CPU. A block of the kernels has a tile of 32 rows and 64 columns, and products
// take 32 elements at a time: the cases have fewer, just as many and more rows, keys and columns of a head.
#include "ops/device_attention_cases.h"

#include "backend/cudnn.h"
#include "test.h"

namespace lmx::testing {
namespace {

class DeviceAttention : public OnDevice {};

const Sizes kSizes[] = {
    {{3, 1, 4}, {2, 5, 1}, 4, 2, 3},                // less than a tile
    {{32, 33, 0, 64}, {64, 65, 0, 129}, 2, 2, 32},  // whole tiles, and one row more; a sequence without rows
    {{70, 1}, {7, 200}, 2, 1, 33},       // many tiles of keys, and a sequence that is far shorter than the other
    {{5, 0, 17}, {5, 9, 17}, 3, 3, 65},  // two blocks for the columns of a head; keys without queries
    {{1}, {1}, 1, 1, 1},
    {{0}, {0}, 1, 1, 2},
};
// Lengths and head sizes of causal attention.
const Sizes kCausalSizes[] = {{{100, 1, 0, 32, 33}, {}, 4, 2, 5}, {{3, 65}, {}, 2, 1, 70}};

void expect_equal_everywhere(const OpCase& c) {
  expect_equal(c, DType::f64, 1e-12);
  expect_equal(c, DType::f32, 2e-5);
}

TEST_F(DeviceAttention, EveryTile) {
  for (const double p : {0.0, 0.3}) {
    for (const Sizes& s : kSizes) {
      expect_equal_everywhere(across(s, p));
      if (HasFatalFailure()) return;
    }
    for (const Sizes& s : kCausalSizes) {
      expect_equal_everywhere(causal(s, p));
      if (HasFatalFailure()) return;
    }
  }
}

// Operands are rounded as for a matrix product. The CPU rounds weights that are divided by their sum, the device such
// that are not, so results differ by a rounding; gradients of scores by that of dy . y, see
// device_attention_mma_test.cc.
TEST_F(DeviceAttention, MixedPrecision) {
  for (const OpCase& c : {across(kSizes[2], 0.3), causal(kCausalSizes[0], 0)}) {
    expect_equal(c, DType::f32, 4e-2, DType::bf16);
    expect_equal(c, DType::f32, 4e-3, DType::f16);
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeviceAttention, BiasesOfSeveralTiles) {
  for (const OpCase& c : biased()) {
    expect_equal_everywhere(c);
    if (HasFatalFailure()) return;
  }
}

// Gradients of operands that use the same columns are added up, in kernels that run one after the other.
TEST_F(DeviceAttention, OneVariableAsEveryOperand) {
  expect_equal_everywhere(with_variables(1, 10));
}

// No sum depends on the order in which blocks run: two runs have the same bits.
TEST_F(DeviceAttention, SameBitsInEveryRun) {
  for (const OpCase& c : {across(kSizes[2], 0.3), causal(kCausalSizes[0], 0.3)})
    EXPECT_EQ(run_on(c, kDevice, DType::f32, DType::f32), run_on(c, kDevice, DType::f32, DType::f32));
}

// Attention of long sequences on a CUDA device, which cuDNN computes (on the emulated device: a reference), against the
// CPU; and the choice between cuDNN and lmx's own kernels.

using ::testing::HasSubstr;

class DeviceLongAttention : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    if (!load_cudnn()) GTEST_SKIP() << cudnn_unavailable();
    Context ctx;
    compute_on(ctx, kDevice);
    const SdpaShape usual{DType::bf16, 1, 1, 1, 64, 640, 640, 192, 192, 192, true};
    const std::string refusal = load_cudnn()->sdpa_refusal(ctx, usual);
    if (!refusal.empty()) GTEST_SKIP() << "cuDNN does not support this device: " << refusal;
  }
  void TearDown() override { unsetenv("LMX_CUDNN"); }
};

// How often cuDNN computed an attention while `run` ran.
template <class Run>
int64_t attentions_of_cudnn(Run&& run) {
  CudaDevice& device = cuda_device(0);
  const DeviceCounts before = device.counts();
  run();
  const auto launches = device.counts().since(before).launches;
  const auto found = launches.find("attention_cudnn_forward");
  return found == launches.end() ? 0 : found->second;
}

bool uses_cudnn(const OpCase& c, DType compute = DType::bf16) {
  return attentions_of_cudnn([&] { run_on(c, kDevice, DType::f32, compute); }) > 0;
}

// One sequence has more than 512 keys. Batches are rounded up to 4 sequences, and lengths to multiples of 128.
const Sizes kAcross[] = {
    {{3, 1, 20}, {5, 2, 513}, 4, 2, 8},    // heads that share keys; a batch of three
    {{600, 0, 7}, {600, 0, 9}, 2, 2, 16},  // a sequence without rows
    {{640}, {640}, 1, 1, 24},              // exactly a bucket
};
const Sizes kOneSelf{{600, 3}, {}, 2, 1, 8};

TEST_F(DeviceLongAttention, EqualsTheCpu) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    const double tolerance = compute == DType::bf16 ? 3e-2 : 4e-3;
    for (const Sizes& s : kAcross) {
      ASSERT_TRUE(uses_cudnn(across(s, 0), compute));
      expect_equal(across(s, 0), DType::f32, tolerance, compute);
    }
    ASSERT_TRUE(uses_cudnn(causal(kOneSelf, 0), compute));
    expect_equal(causal(kOneSelf, 0), DType::f32, tolerance, compute);
  }
}

// The values are those of lmx's own kernel on the same device, up to the rounding of the result.
TEST_F(DeviceLongAttention, EqualsTheOwnKernels) {
  const OpCase c = causal(kOneSelf, 0);
  const std::vector<Values> by_cudnn = run_on(c, kDevice, DType::f32, DType::bf16);
  setenv("LMX_CUDNN", "0", 1);
  EXPECT_FALSE(uses_cudnn(c));
  expect_close(by_cudnn, run_on(c, kDevice, DType::f32, DType::bf16), 3e-2);
}

TEST_F(DeviceLongAttention, SameBitsInEveryRun) {
  for (const OpCase& c : {across(kAcross[0], 0), causal(kOneSelf, 0)})
    EXPECT_EQ(run_on(c, kDevice, DType::f32, DType::bf16), run_on(c, kDevice, DType::f32, DType::bf16));
}

TEST_F(DeviceLongAttention, TheSizesDecide) {
  EXPECT_TRUE(uses_cudnn(across({{2}, {513}, 2, 1, 8}, 0)));
  EXPECT_FALSE(uses_cudnn(across({{2}, {512}, 2, 1, 8}, 0))) << "few keys";
  EXPECT_FALSE(uses_cudnn(across({{2}, {513}, 2, 1, 12}, 0))) << "heads of 24 bytes";
  EXPECT_TRUE(uses_cudnn(across({{2}, {513}, 1, 1, 128}, 0)));
  EXPECT_FALSE(uses_cudnn(across({{2}, {513}, 1, 1, 136}, 0))) << "large heads";
  EXPECT_FALSE(uses_cudnn(across({{2, 0}, {513, 1}, 2, 1, 8}, 0))) << "keys without queries";
  EXPECT_FALSE(uses_cudnn(across({{2}, {513}, 2, 1, 8}, 0.1))) << "dropout";
  EXPECT_FALSE(uses_cudnn(across({{2}, {513}, 2, 1, 8}, 0), DType::f32)) << "fp32";
  OpCase biased = across({{2}, {513}, 2, 1, 8}, 0);
  biased.inputs.push_back({2, 513});
  biased.result = [](Context& ctx, const Vars& v) {
    AttentionOptions o = options_of({{2}, {513}, 2, 1, 8}, 0, {});
    o.bias = v[3];
    return attention(ctx, {v[0], v[1], v[2], Segments::of(Lengths{2}), Segments::of(Lengths{513})}, o);
  };
  EXPECT_FALSE(uses_cudnn(biased)) << "a bias";
}

// Gradients of one variable as every operand would have to be added up.
TEST_F(DeviceLongAttention, OneVariableAsEveryOperandIsComputedByTheOwnKernels) {
  const Segments s = Segments::of(Lengths{520});
  const OpCase c{"attention",
                 "one variable",
                 [=](Context& ctx, const Vars& v) {
                   AttentionOptions o;
                   o.heads = 1;
                   return attention(ctx, {v[0], v[0], v[0], s, s}, o);
                 },
                 {{520, 8}}};
  EXPECT_FALSE(uses_cudnn(c));
}

// Two attentions of one variable: the second gradient is added to the first.
TEST_F(DeviceLongAttention, GradientsAddUp) {
  const Segments s = Segments::of(Lengths{520, 3});
  const OpCase c{"attention",
                 "two of one variable",
                 [=](Context& ctx, const Vars& v) {
                   AttentionOptions o;
                   o.heads = 1;
                   const Var first = attention(ctx, v[0], s, o);
                   o.causal = true;
                   return add(ctx, first, attention(ctx, v[0], s, o));
                 },
                 {{523, 24}}};
  EXPECT_EQ(attentions_of_cudnn([&] { run_on(c, kDevice, DType::f32, DType::bf16); }), 2);
  expect_equal(c, DType::f32, 3e-2, DType::bf16);
}

// Operands that no gradient is needed of, and a value that another op computed, whose gradient has an operand.
TEST_F(DeviceLongAttention, OperandsOfProductsAndConstants) {
  const Segments s = Segments::of(Lengths{514});
  const OpCase c{"attention",
                 "after a product",
                 [=](Context& ctx, const Vars& v) {
                   AttentionOptions o;
                   o.heads = 2;
                   // Small weights: the scores of large ones would make the gradients depend on single roundings.
                   const Var w = scale(ctx, v[1], 0.25), constant(v[0].value());
                   const Var q = linear(ctx, v[0], w, {}), kv = linear(ctx, constant, scale(ctx, v[2], 0.25), {});
                   return linear(ctx, attention(ctx, q, kv, s, s, o), w, {});
                 },
                 {{514, 16}, {16, 16}, {32, 16}}};
  EXPECT_TRUE(uses_cudnn(c, DType::f16));
  expect_equal(c, DType::f32, 3e-2, DType::f16);
}

// A rotated projection, whose operands, result and gradients exist in 16 bits alone. lmx's own kernels, which round the
// same values, are compared with the CPU in device_projections_test.cc.
TEST_F(DeviceLongAttention, RotatedProjections) {
  const Segments s = Segments::of(Lengths{514, 5});
  const auto layer = [=](Context& ctx, const Vars& v) {
    RopeOptions turn{3};
    turn.rotated = 2;
    AttentionOptions o;
    o.causal = true;
    const Rotations rotations = rotations_of(ctx, positions_of(s), 16, turn, DType::f32);
    return attention(ctx, rope(ctx, {v[0], scale(ctx, v[1], 0.25), v[2]}, rotations, turn), s, o);
  };
  const OpCase c{"attention",
                 "of a rotated projection",
                 [=](Context& ctx, const Vars& v) { return linear(ctx, layer(ctx, v), scale(ctx, v[3], 0.25), {}); },
                 {{519, 16}, {48, 16}, {48}, {16, 16}}};
  for (const DType compute : {DType::bf16, DType::f16}) {
    EXPECT_TRUE(uses_cudnn(c, compute));
    const std::vector<Values> by_cudnn = run_on(c, kDevice, DType::f32, compute);
    setenv("LMX_CUDNN", "0", 1);
    expect_close(by_cudnn, run_on(c, kDevice, DType::f32, compute), compute == DType::bf16 ? 6e-2 : 8e-3);
    unsetenv("LMX_CUDNN");
  }
  Place place(kDevice, DType::bf16);
  Vars v;
  for (size_t i = 0; i < c.inputs.size(); ++i) v.push_back(place.leaf(f64_tensor(c.inputs[i], i + 1)));
  EXPECT_EQ(layer(place.ctx, v).value().dtype(), DType::bf16);
}

TEST_F(DeviceLongAttention, AnotherValueOfTheVariableIsAnError) {
  setenv("LMX_CUDNN", "yes", 1);
  EXPECT_EQ(lmx_test::user_error([] { uses_cudnn(causal(kOneSelf, 0)); }),
            "[cudnn] LMX_CUDNN=yes: must be auto, 0 or 1");
}

// The emulated cuDNN refuses every shape, as the real one does on some architectures.
TEST(EmulatedLongAttention, ARefusalLeavesTheOwnKernels) {
  if (!emulates_device()) GTEST_SKIP() << "no emulated device";
  const EmulatedError error("sdpa");
  EXPECT_FALSE(uses_cudnn(causal(kOneSelf, 0)));
  setenv("LMX_CUDNN", "1", 1);
  EXPECT_THAT(lmx_test::user_error([] { uses_cudnn(causal(kOneSelf, 0)); }),
              HasSubstr("does not compute attention of 640 keys and heads of 8 in bf16 on cuda:0: the emulated cuDNN "
                        "supports no attention; without LMX_CUDNN=1"));
  unsetenv("LMX_CUDNN");
}

}  // namespace
}  // namespace lmx::testing
