// Attention on tensor cores, which computes in bf16 and fp16, against the CPU. A warp has 16 rows. If no sequence has
// more than 64 queries or keys, a block has 32 or 64 rows of each. Otherwise, with a bias, and if heads share keys, it
// has 1, 2 or 4 warps, depending on the longest sequence; the other side passes in tiles of 32 rows, and masks belong
// to groups of 64 keys. The columns of a head are padded to 32, 64 or 128 in shared memory.
#include "ops/device_attention_cases.h"

namespace lmx::testing {
namespace {

class DeviceAttentionMma : public OnDevice {};

const Sizes kMmaAcross[] = {
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

// Short sentences, and in each list one sentence that is too long.
const Sizes kSentences[] = {
    {{1, 15, 16, 17, 27, 33, 63, 64}, {64, 63, 33, 27, 17, 16, 15, 2}, 2, 2, 64},
    {{1, 15, 16, 17, 0, 2, 32}, {27, 17, 32, 15, 5, 1, 16}, 2, 2, 64},
    {{33, 64}, {64, 31}, 1, 1, 32},
    {{64, 3}, {65, 3}, 2, 2, 64},
    {{65, 3}, {64, 3}, 2, 2, 64},
    {{64}, {63}, 1, 1, 128},
    {{17, 32}, {31, 32}, 2, 2, 33},
};
const Sizes kCausalSentences[] = {{{1, 15, 16, 17, 27, 32}, {}, 2, 2, 64},
                                  {{0, 33, 63, 64}, {}, 2, 2, 32},
                                  {{64}, {}, 1, 1, 128},
                                  {{65, 27}, {}, 2, 2, 64}};

std::vector<OpCase> cases(std::span<const Sizes> across_others, std::span<const Sizes> causal_tiles, double p) {
  std::vector<OpCase> all;
  for (const Sizes& s : across_others) all.push_back(across(s, p));
  for (const Sizes& s : causal_tiles) all.push_back(causal(s, p));
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
//
// The device computes delta from dy and y, and for short sentences from dy and v, that are rounded, which the CPU does
// not round there: about u |y| more in each gradient of a score, and with few keys |y| is about 1.
double tolerance(DType compute, double p) {
  return 8 * unit_roundoff(compute) / (1 - p);
}

void expect_all(std::span<const Sizes> across_others, std::span<const Sizes> causal_tiles) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    for (const double p : {0.0, 0.3}) {
      for (const OpCase& c : cases(across_others, causal_tiles, p)) {
        expect_equal(c, DType::f32, tolerance(compute, p), compute);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(DeviceAttentionMma, EveryTile) {
  expect_all(kMmaAcross, kCausalTiles);
}

TEST_F(DeviceAttentionMma, ShortSentences) {
  expect_all(kSentences, kCausalSentences);
}

TEST_F(DeviceAttentionMma, Biases) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    for (const OpCase& c : biased()) {
      expect_equal(c, DType::f32, tolerance(compute, 0.2), compute);
      if (HasFatalFailure()) return;
    }
  }
}

// The weight of an only key is 1 for any q and k. The CPU's gradients have the error of delta there.
TEST_F(DeviceAttentionMma, AnOnlyKeyHasNoSlope) {
  const OpCase c = across({{64, 5}, {1, 1}, 2, 2, 64}, 0);
  const std::vector<Values> got = run_on(c, kDevice, DType::f32, DType::bf16),
                            want = run_on(c, {}, DType::f32, DType::bf16);
  expect_close({got[0], got[3]}, {want[0], want[3]}, tolerance(DType::bf16, 0));
  for (const Values& slopes : {got[1], got[2]})
    for (const double slope : slopes) ASSERT_NEAR(slope, 0, 1e-5);
}

// The errors of the gradients of a variable are added up.
TEST_F(DeviceAttentionMma, OneVariableAsSeveralOperands) {
  for (const int64_t width : {10, 16}) {
    for (const OpCase& c : {with_variables(1, width), with_variables(1, width, {40, 7}, {7, 40}),
                            with_variables(2, width), with_variables(2, width, {40, 7}, {7, 40})}) {
      expect_equal(c, DType::f32, 3 * tolerance(DType::f16, 0), DType::f16);
      if (HasFatalFailure()) return;
    }
  }
}

// Without 16-byte alignment, no load and no store has several elements.
TEST_F(DeviceAttentionMma, UnalignedRows) {
  for (const Sizes& s : {kMmaAcross[0], kMmaAcross[2], kSentences[0]})
    for (const int64_t shift : {1, 2})
      expect_equal(across(s, 0.3), DType::f32, tolerance(DType::bf16, 0.3), DType::bf16, shift);
}

TEST_F(DeviceAttentionMma, SameBitsInEveryRun) {
  for (const OpCase& c : {across(kMmaAcross[2], 0.3), causal(kCausalTiles[0], 0.3), across(kSentences[0], 0.3),
                          causal(kCausalSentences[0], 0.3)})
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
    for (const Sizes& s : kMmaAcross) expect_exact(s, false);
    for (const Sizes& s : kCausalTiles) expect_exact(s, true);
    for (const Sizes& s : kSentences) expect_exact(s, false);
    for (const Sizes& s : kCausalSentences) expect_exact(s, true);
  }
}

// A longer sequence in the batch changes the number of warps of a block, but no bit of the results of another sequence.
// Two heads of keys: the kernels for short sentences compute the call. One: those for tiles.
TEST_F(DeviceAttentionMma, BitsDoNotDependOnOtherSequences) {
  const auto run = [](const Lengths& lengths, int64_t kv_heads) {
    return run_on(causal({lengths, {}, 2, kv_heads, 16}, 0.3), kDevice, DType::f32, DType::bf16);
  };
  const std::pair<int64_t, std::vector<int64_t>> cases[] = {{1, {20, 70}}, {2, {20, 40}}};
  for (const auto& [kv_heads, others] : cases) {
    const std::vector<Values> alone = run({15}, kv_heads);
    for (const int64_t longer : others) {
      const std::vector<Values> both = run({15, longer}, kv_heads);
      for (size_t k = 0; k < alone.size(); ++k) {
        ASSERT_LT(alone[k].size(), both[k].size());
        EXPECT_TRUE(std::equal(alone[k].begin(), alone[k].end(), both[k].begin())) << k << ' ' << longer;
      }
    }
  }
}

// The kernels are chosen by the compute type and the shape.
using AttentionLaunches = std::map<std::string, int64_t>;
const AttentionLaunches kSentenceLaunches{{"attention_forward_sentences", 1}, {"attention_backward_sentences", 1}},
    kTileLaunches{{"attention_forward_mma", 1}, {"attention_backward", 1}, {"attention_backward_mma", 2}},
    kOrdinaryLaunches{{"attention_forward", 1}, {"attention_backward", 3}};

AttentionLaunches launches(const OpCase& c, DType compute) {
  const DeviceCounts before = cuda_device(0).counts();
  run_on(c, kDevice, DType::f32, compute);
  AttentionLaunches found;
  for (const auto& [name, times] : cuda_device(0).counts().since(before).launches)
    if (name.starts_with("attention") && times > 0) found.emplace(name, times);
  return found;
}

TEST_F(DeviceAttentionMma, ComputesHeadsOfUpTo128ColumnsIn16Bits) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    EXPECT_EQ(launches(across({{3}, {65}, 1, 1, 128}, 0), compute), kTileLaunches);
    EXPECT_EQ(launches(across({{3}, {65}, 1, 1, 129}, 0), compute), kOrdinaryLaunches);
  }
  EXPECT_EQ(launches(across({{3}, {65}, 1, 1, 64}, 0), DType::f32), kOrdinaryLaunches);
}

TEST_F(DeviceAttentionMma, ComputesShortSentencesInOnePass) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    EXPECT_EQ(launches(across({{64, 1}, {1, 64}, 2, 2, 128}, 0.3), compute), kSentenceLaunches);
    EXPECT_EQ(launches(across({{64}, {65}, 2, 2, 64}, 0.3), compute), kTileLaunches);
    EXPECT_EQ(launches(across({{65}, {64}, 2, 2, 64}, 0.3), compute), kTileLaunches);
    EXPECT_EQ(launches(across({{3}, {3}, 2, 1, 64}, 0.3), compute), kTileLaunches) << "heads share keys";
    EXPECT_EQ(launches(across({{3}, {3}, 1, 1, 129}, 0.3), compute), kOrdinaryLaunches);
  }
  EXPECT_EQ(launches(across({{3}, {3}, 1, 1, 64}, 0), DType::f32), kOrdinaryLaunches);
}

// The blocks of two sequences would add to the same rows at the same time: one as queries, the other as keys.
TEST_F(DeviceAttentionMma, SharedQueriesAndKeysNeedTwoPasses) {
  AttentionLaunches forward_alone = kTileLaunches;
  forward_alone.erase("attention_forward_mma");
  forward_alone.emplace("attention_forward_sentences", 1);
  EXPECT_EQ(launches(with_variables(1, 16, {40, 7}, {7, 40}), DType::bf16), forward_alone);
  EXPECT_EQ(launches(with_variables(2, 16, {40, 7}, {7, 40}), DType::bf16), kSentenceLaunches);
}

}  // namespace
}  // namespace lmx::testing
