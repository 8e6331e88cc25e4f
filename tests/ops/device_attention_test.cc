// Attention on a CUDA device against the CPU. A block of the kernels has a tile of 32 rows and 64 columns, and products
// take 32 elements at a time: the cases have fewer, just as many and more rows, keys and columns of a head.
#include "ops/device_attention_cases.h"

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
// that are not, so results differ by a rounding.
TEST_F(DeviceAttention, MixedPrecision) {
  for (const OpCase& c : {across(kSizes[2], 0.3), causal(kCausalSizes[0], 0)}) {
    expect_equal(c, DType::f32, 2e-2, DType::bf16);
    expect_equal(c, DType::f32, 2e-3, DType::f16);
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

}  // namespace
}  // namespace lmx::testing
