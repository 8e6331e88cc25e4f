// The functions on vectors that compressors are composed of, on the CPU and on a device, against plain loops.
#include "lmx/vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "device.h"
#include "sync/group.h"

namespace lmx {
namespace {

using Floats = std::vector<float>;

// Normal values with ties and zeros of either sign.
Floats values_with_ties(int64_t n, uint64_t seed) {
  Floats v;
  for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
    v.push_back(static_cast<float>(RandomKey(seed).normal(i)));
    if (i % 3 == 1) v.back() = i % 2 ? 0.5f : -0.5f;
    if (i % 7 == 3) v.back() = i % 2 ? 0.0f : -0.0f;
  }
  return v;
}

class Vectors : public testing::TestWithParam<Device::Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Device::Kind::cuda && load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
    ctx_ = lmx_test::context_on(GetParam());
  }
  Tensor tensor(const Floats& v) { return ctx_.upload(Tensor::from<float>(ctx_.host, {size_of(v)}, v)).clone(); }
  template <class T>
  std::vector<T> list(const Tensor& t) {
    const auto read = ctx_.read<T>(t);
    return {read.get().begin(), read.get().end()};
  }
  static int64_t size_of(const Floats& v) { return static_cast<int64_t>(v.size()); }
  Context ctx_;
};
INSTANTIATE_TEST_SUITE_P(Cpu, Vectors, testing::Values(Device::Kind::cpu));
INSTANTIATE_TEST_SUITE_P(Device, Vectors, testing::Values(Device::Kind::cuda));

// NaN first, then by absolute value, then by index.
std::vector<int32_t> largest(const Floats& v, int64_t begin, int64_t end, int64_t k) {
  std::vector<int32_t> ids(static_cast<size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), static_cast<int32_t>(begin));
  const auto key = [&](int32_t i) {
    const float x = v[static_cast<size_t>(i)];
    return std::pair(std::isnan(x), std::isnan(x) ? 0 : std::abs(static_cast<double>(x)));
  };
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
  ids.resize(static_cast<size_t>(std::min(k, end - begin)));
  std::sort(ids.begin(), ids.end());
  return ids;
}

struct Taken {
  int64_t n, k, chunk;
};

TEST_P(Vectors, LargestElementsAreTakenAndTiesGoToLowerIndices) {
  for (const Taken& t : {Taken{1, 1, 0},
                         {7, 7, 0},
                         {300, 1, 0},
                         {300, 150, 0},
                         {5000, 37, 64},
                         {5000, 64, 64},
                         {40000, 300, 0},
                         {40000, 21000, 0},
                         {70001, 500, 33000},
                         {100, 50, 200}}) {
    SCOPED_TRACE(str(t.k, " of ", t.n, ", chunk ", t.chunk));
    Floats v = values_with_ties(t.n, 5);
    if (t.n > 200) v[170] = std::numeric_limits<float>::quiet_NaN(), v[5] = std::numeric_limits<float>::infinity();
    std::vector<int32_t> want;
    const int64_t chunk = t.chunk == 0 ? t.n : t.chunk;
    for (int64_t at = 0; at < t.n; at += chunk)
      for (const int32_t i : largest(v, at, std::min(t.n, at + chunk), t.k)) want.push_back(i);
    Tensor left = tensor(v);
    const Entries taken = take_largest(ctx_, left, t.k, t.chunk);
    EXPECT_EQ(list<int32_t>(taken.ids), want);
    EXPECT_EQ(largest_count(t.n, t.k, t.chunk), static_cast<int64_t>(want.size()));
    const Floats got = list<float>(taken.values), rest = list<float>(left);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      float& own = v[static_cast<size_t>(want[i])];
      EXPECT_TRUE(got[i] == own || (std::isnan(got[i]) && std::isnan(own))) << want[i];
      own = 0;
    }
    EXPECT_EQ(rest, v);
  }
}

TEST_P(Vectors, RandomElementsAreTheSameOnAllRanksAndDifferent) {
  if (GetParam() != Device::Kind::cpu) GTEST_SKIP() << "the device is used by the strategies' tests";
  sync_test::make_group(3)->run([&](Communicator& comm) {
    Context ctx;
    ctx.comm = &comm;
    ctx.allocator = ctx.host = comm.allocator();
    const Floats v = values_with_ties(1000, 1 + static_cast<uint64_t>(comm.rank()));
    Tensor left = Tensor::from<float>(ctx.allocator, {1000}, v);
    const Entries taken = take_random(ctx, left, 100, RandomKey(9));
    std::set<int32_t> ids;
    for (int64_t i = 0; i < 100; ++i) {
      const int32_t id = taken.ids.data<int32_t>()[i];
      ids.insert(id);
      EXPECT_EQ(id, static_cast<int32_t>(permute(RandomKey(9), static_cast<uint64_t>(i), 1000)));
      EXPECT_EQ(taken.values.data<float>()[i], v[static_cast<size_t>(id)]);
      EXPECT_EQ(left.data<float>()[id], 0);
    }
    EXPECT_EQ(ids.size(), 100u);
    const Tensor sum = gather_entries(ctx, taken, 1000, "test");
    for (const int32_t id : ids) {
      float want = 0;
      for (uint64_t r = 0; r < 3; ++r) want += values_with_ties(1000, 1 + r)[static_cast<size_t>(id)];
      EXPECT_EQ(sum.data<float>()[id], want);
    }
    EXPECT_EQ(std::count(sum.values<float>().begin(), sum.values<float>().end(), 0.0f) >= 900, true);
  });
}

// Also if the value is not among the chosen ones.
TEST_P(Vectors, RandomElementsAreNanIfAnElementIsNotFinite) {
  sync_test::make_group(1)->run([&](Communicator& comm) {
    ctx_.comm = &comm;
    for (const float value : {INFINITY, -INFINITY, NAN, 3e38f}) {
      Floats v(1000, 2.0f);
      v[static_cast<size_t>(permute(RandomKey(9), 999, 1000))] = value;
      const Entries taken = take_random(ctx_, tensor(v), 10, RandomKey(9));
      for (const float got : list<float>(taken.values)) EXPECT_EQ(std::isnan(got), !std::isfinite(value));
    }
  });
}

TEST_P(Vectors, BitsArePackedWithoutGaps) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (const int64_t n : {1, 7, 8, 9, 1000}) {
      SCOPED_TRACE(str(n, " codes of ", bits, " bits"));
      std::vector<uint8_t> codes, packed(static_cast<size_t>((n * bits + 7) / 8));
      for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
        codes.push_back(static_cast<uint8_t>(RandomKey(3).bits(i) & ((1u << bits) - 1)));
        for (size_t b = 0; b < static_cast<size_t>(bits); ++b) {
          const size_t at = i * static_cast<size_t>(bits) + b;
          packed[at / 8] = static_cast<uint8_t>(packed[at / 8] | (codes.back() >> b & 1) << (at % 8));
        }
      }
      const Tensor t = ctx_.upload(Tensor::from<uint8_t>(ctx_.host, {n}, codes));
      const Tensor got = pack_bits(ctx_, t, bits);
      EXPECT_EQ(list<uint8_t>(got), packed);
      EXPECT_EQ(list<uint8_t>(unpack_bits(ctx_, got, bits, n)), codes);
    }
  }
}

double norm_of(const Floats& v, int64_t begin, int64_t end, bool largest) {
  double squares = 0, most = 0;
  for (int64_t i = begin; i < end; ++i) {
    const auto x = static_cast<double>(v[static_cast<size_t>(i)]);
    squares += x * x;
    most = std::max(most, std::abs(x));
  }
  return largest ? most : std::sqrt(squares);
}

// Each value is one of the two levels beside it, and the mean over many keys is the value.
TEST_P(Vectors, QuantisedValuesAreNextToTheirValueAndEqualItInTheMean) {
  constexpr int64_t kSize = 70;
  const Floats v = values_with_ties(kSize, 8);
  for (const QuantiserConfig& c : {QuantiserConfig{2, 32, false}, {4, 512, false}, {8, 64, true}, {3, 1, true}}) {
    SCOPED_TRACE(str(c.bits, " bits, bucket ", c.bucket, ", largest ", c.largest));
    constexpr uint64_t kKeys = 1024;
    const double levels = std::exp2(c.bits - 1) - 1;
    std::vector<double> sums(kSize);
    for (uint64_t key = 0; key < kKeys; ++key) {
      Tensor decoded = ctx_.zeros({kSize});
      const Quantised q = quantise(ctx_, c, tensor(v), RandomKey(key));
      EXPECT_EQ(q.norms.numel(), (kSize + c.bucket - 1) / c.bucket);
      EXPECT_EQ(q.codes.numel(), (kSize * c.bits + 7) / 8);
      add_quantised(ctx_, c, q, 1, decoded);
      const Floats got = list<float>(decoded);
      for (int64_t i = 0; i < kSize; ++i) {
        const int64_t begin = i / c.bucket * c.bucket;
        const double step = norm_of(v, begin, std::min(kSize, begin + c.bucket), c.largest) / levels;
        const auto x = static_cast<double>(v[static_cast<size_t>(i)]),
                   y = static_cast<double>(got[static_cast<size_t>(i)]);
        EXPECT_LE(std::abs(y - x), step * 1.00001);
        EXPECT_NEAR(y / std::max(step, 1e-30), std::round(y / std::max(step, 1e-30)), 1e-4);
        sums[static_cast<size_t>(i)] += (y - x) / std::max(step, 1e-30);
      }
    }
    // The standard deviation of a value is at most half a step.
    for (const double sum : sums) EXPECT_LT(std::abs(sum / kKeys), 5 * 0.5 / std::sqrt(kKeys));
  }
}

TEST_P(Vectors, QuantisedBucketsOfZerosAndOfNaNStay) {
  Floats v(40, 0.0f);
  v[25] = std::numeric_limits<float>::quiet_NaN();
  for (const bool largest : {false, true}) {
    const QuantiserConfig c{4, 20, largest};
    Tensor decoded = ctx_.zeros({40});
    add_quantised(ctx_, c, quantise(ctx_, c, tensor(v), RandomKey(1)), 1, decoded);
    const Floats got = list<float>(decoded);
    for (size_t i = 0; i < 20; ++i) EXPECT_EQ(got[i], 0);
    EXPECT_TRUE(std::isnan(got[25]));
  }
}

// The columns become orthonormal and span the same space; dependent ones are replaced.
TEST_P(Vectors, ColumnsBecomeOrthonormal) {
  for (const auto& [rows, columns] : {std::pair<size_t, size_t>{1, 1}, {3, 3}, {300, 4}, {1000, 2}}) {
    for (const std::string what : {"random", "equal", "zero"}) {
      SCOPED_TRACE(str(rows, " x ", columns, ' ', what));
      Floats v = values_with_ties(static_cast<int64_t>(rows * columns), 4);
      for (size_t i = 0; i < v.size(); ++i) {
        if (what == "random") v[i] = static_cast<float>(RandomKey(6).normal(i));
        if (what == "zero") v[i] = 0;
        if (what == "equal") v[i] = static_cast<float>(i / columns + 1);
      }
      Tensor m = tensor(v).reshape({static_cast<int64_t>(rows), static_cast<int64_t>(columns)});
      orthonormalise(ctx_, m);
      const Floats got = list<float>(m);
      for (size_t c = 0; c < columns; ++c)
        for (size_t d = 0; d <= c; ++d) {
          double dot = 0;
          for (size_t r = 0; r < rows; ++r)
            dot += static_cast<double>(got[r * columns + c]) * static_cast<double>(got[r * columns + d]);
          EXPECT_NEAR(dot, c == d ? 1 : 0, 1e-5) << c << ", " << d;
        }
      if (what == "zero") continue;
      const double sign = v[0] > 0 ? 1 : -1;  // the first column keeps its direction
      EXPECT_GT(sign * static_cast<double>(got[0]), 0);
    }
  }
}

TEST_P(Vectors, ScaledAndProductMakeNewTensors) {
  const Tensor x = tensor({1, -2, 3, 0.5f, 0, 4}), y = scaled(ctx_, x, -2);
  EXPECT_EQ(list<float>(y), (Floats{-2, 4, -6, -1, 0, -8}));
  EXPECT_EQ(list<float>(x)[1], -2);
  const Tensor a = x.reshape({2, 3}), b = x.reshape({3, 2});
  EXPECT_EQ(list<float>(product(ctx_, a, false, b, false)), (Floats{-5, 9, 0.5f, 15}));
  EXPECT_EQ(list<float>(product(ctx_, b, true, a, true)), (Floats{-5, 0.5f, 9, 15}));
}

TEST_P(Vectors, SignsKeepZerosAndAreNanWhereAValueIsNotFinite) {
  const Floats got = list<float>(signs(ctx_, tensor({3, -0.5f, 0, -0.0f, std::nanf(""), INFINITY, -INFINITY})));
  EXPECT_EQ((Floats{got.begin(), got.begin() + 4}), (Floats{1, -1, 0, 0}));
  EXPECT_TRUE(std::signbit(got[3]));
  EXPECT_TRUE(std::all_of(got.begin() + 4, got.end(), [](float v) { return std::isnan(v); }));
}

}  // namespace
}  // namespace lmx
