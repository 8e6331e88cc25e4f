// Attention on tensor cores, which computes in bf16 and fp16, against the CPU. A warp has 16 rows and a block 1, 2 or 4
// warps, depending on the longest sequence; the other side passes in tiles of 32 rows, and masks belong to groups of 64
// keys. The columns of a head are padded to 32, 64 or 128 in shared memory.
#include "ops/device_attention_cases.h"

namespace lmx::testing {
namespace {

class DeviceAttentionMma : public OnDevice {};

const Sizes kAcross[] = {
    {{27, 0, 16, 17}, {27, 3, 16, 33}, 2, 2, 64},  // sentences; keys without queries
    {{3, 1, 4}, {2, 5, 1}, 4, 2, 3},               // less than a tile; no load of several elements
    {{70, 1}, {7, 200}, 2, 1, 40},                 // four warps; a sequence that is far shorter than the other
    {{33, 64}, {65, 31}, 2, 1, 8},                 // whole tiles, and one row more
    {{5, 17}, {9, 64}, 3, 1, 16},
    {{20}, {40}, 2, 2, 24},
    {{18}, {35}, 1, 1, 80},
    {{34, 2}, {18, 66}, 2, 1, 96},
    {{40}, {33}, 1, 1, 128},
    {{40}, {33}, 1, 1, 136},  // more columns than the kernels for tensor cores have
    {{1}, {1}, 1, 1, 6},
    {{0}, {0}, 1, 1, 2},
};
const Sizes kCausalTiles[] = {
    {{27, 1, 0, 32, 33}, {}, 4, 2, 64}, {{100, 3}, {}, 2, 1, 40}, {{65}, {}, 1, 1, 128}, {{16, 48}, {}, 2, 1, 5}};

std::vector<OpCase> cases(double p) {
  std::vector<OpCase> all;
  for (const Sizes& s : kAcross) all.push_back(across(s, p));
  for (const Sizes& s : kCausalTiles) all.push_back(causal(s, p));
  return all;
}

// Half of the distance between 1 and the next number.
double unit_roundoff(DType compute) {
  return compute == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

// Both sides round q, k, v and dy in the same way. The device rounds weights that are not yet divided by their sum, so
// each weight of y differs by up to two roundings u. Gradients of scores are rounded on both sides as well; before that
// they differ by those of delta, which is dy . y. The sums in f32 differ by far less. Inputs have the variance 1, and
// the weights of a row the sum 1 / (1 - p), so errors of 4 u / (1 - p) are more than all of these together.
double tolerance(DType compute, double p) {
  return 4 * unit_roundoff(compute) / (1 - p);
}

TEST_F(DeviceAttentionMma, EveryTile) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    for (const double p : {0.0, 0.3}) {
      for (const OpCase& c : cases(p)) {
        expect_equal(c, DType::f32, tolerance(compute, p), compute);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(DeviceAttentionMma, Biases) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    for (const OpCase& c : biased()) {
      expect_equal(c, DType::f32, tolerance(compute, 0.2), compute);
      if (HasFatalFailure()) return;
    }
  }
}

// The errors of three gradients are added up.
TEST_F(DeviceAttentionMma, OneVariableAsEveryOperand) {
  expect_equal(one_variable(), DType::f32, 3 * tolerance(DType::f16, 0), DType::f16);
}

TEST_F(DeviceAttentionMma, SameBitsInEveryRun) {
  for (const OpCase& c : {across(kAcross[2], 0.3), causal(kCausalTiles[0], 0.3)})
    EXPECT_EQ(run_on(c, kDevice, DType::f32, DType::bf16), run_on(c, kDevice, DType::f32, DType::bf16));
}

// Equal scores, values that are small integers, and p = 1/2: the weights before division are 0, 1 or 2, so no rounding
// to 16 bits changes anything in y, and dv has the same roundings on both sides. A wrong mask, key or row is a large
// error.
std::vector<Values> with_equal_scores(const Sizes& s, bool causal, Device device, DType compute) {
  const int64_t n = sum_of(s.queries), m = causal ? n : sum_of(s.keys);
  const auto integers = [](Shape shape, int64_t factor) {
    Tensor t = Tensor::empty(Allocator::cpu(), shape, DType::f64);
    for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = static_cast<double>(i * factor % 61 % 17 - 8);
    return t;
  };
  Place place(device, compute);
  const Var q = place.leaf(integers({n, s.heads * s.size}, 0), false), zero = scale(place.ctx, q, 0);
  const Var k = place.leaf(integers({m, s.kv_heads * s.size}, 7)), v = place.leaf(integers(k.shape(), 19));
  const std::vector<uint64_t> ids = ids_of(n);
  AttentionOptions o = options_of(s, 0.5, ids);
  o.causal = causal;
  const Segments queries = Segments::of(s.queries);
  const Var y = attention(place.ctx, {zero, k, v, queries, causal ? queries : Segments::of(s.keys)}, o);
  const Var weights = place.leaf(integers(y.shape(), 23), false);
  place.tape.backward(place.ctx, sum(place.ctx, multiply(place.ctx, y, weights)));
  return {place.values(y.value()), place.gradient(v)};
}

TEST_F(DeviceAttentionMma, EqualScoresAreExact) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    const auto expect_exact = [&](const Sizes& s, bool causal) {
      const std::vector<Values> got = with_equal_scores(s, causal, kDevice, compute);
      expect_close({got[0]}, {with_equal_scores(s, causal, {}, DType::f32)[0]}, 1e-5);
      expect_close({got[1]}, {with_equal_scores(s, causal, {}, compute)[1]}, 1e-5);
    };
    for (const Sizes& s : kAcross) expect_exact(s, false);
    for (const Sizes& s : kCausalTiles) expect_exact(s, true);
  }
}

// A longer sequence in the batch changes the number of warps of a block, but no bit of the results of another sequence.
TEST_F(DeviceAttentionMma, BitsDoNotDependOnOtherSequences) {
  const auto run = [](const Lengths& lengths) {
    return run_on(causal({lengths, {}, 4, 2, 16}, 0.3), kDevice, DType::f32, DType::bf16);
  };
  const std::vector<Values> alone = run({15});
  for (const int64_t longer : {20, 70}) {
    const std::vector<Values> both = run({15, longer});
    for (size_t k = 0; k < alone.size(); ++k) {
      ASSERT_LT(alone[k].size(), both[k].size());
      EXPECT_TRUE(std::equal(alone[k].begin(), alone[k].end(), both[k].begin())) << k << ' ' << longer;
    }
  }
}

// The kernel is chosen by the compute type and the columns of a head.
TEST_F(DeviceAttentionMma, ComputesHeadsOfUpTo128ColumnsIn16Bits) {
  const auto launches = [](int64_t size, DType compute) {
    const DeviceCounts before = cuda_device(0).counts();
    run_on(across({{3}, {3}, 1, 1, size}, 0), kDevice, DType::f32, compute);
    const auto all = cuda_device(0).counts().since(before).launches;
    const auto of = [&](const char* name) { return all.contains(name) ? all.at(name) : 0; };
    return std::pair(of("attention_forward_mma"), of("attention_backward_mma"));
  };
  for (const DType compute : {DType::bf16, DType::f16}) {
    EXPECT_EQ(launches(128, compute), std::pair(int64_t{1}, int64_t{2}));
    EXPECT_EQ(launches(129, compute), std::pair(int64_t{0}, int64_t{0}));
  }
  EXPECT_EQ(launches(64, DType::f32), std::pair(int64_t{0}, int64_t{0}));
}

}  // namespace
}  // namespace lmx::testing
