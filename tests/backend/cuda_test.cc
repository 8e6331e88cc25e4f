// The CUDA seam. Without a device: nothing is missing and the messages say so. With one: its kernels against the CPU's.
#include "backend/cuda.h"

#include "lmx/error.h"
#include "lmx/matmul.h"
#include "lmx/parameters.h"
#include "test.h"

namespace lmx {
namespace {

TEST(Cuda, WithoutADeviceTheMessageSaysSo) {
  if (load_cuda() > 0) GTEST_SKIP() << "a CUDA device answers";
  EXPECT_EQ(load_cuda(), 0);
  EXPECT_EQ(lmx_test::user_error([] { cuda_device(0); }), "[cuda] no device cuda:0; 0 answer");
}

TEST(Cuda, CopyOnTheHostWorksWithoutCuda) {
  const auto cpu = Allocator::cpu();
  const Tensor t = Tensor::from<int32_t>(cpu, {3}, std::vector<int32_t>{1, 2, 3});
  EXPECT_EQ(copy_to(t, cpu).data<int32_t>()[2], 3);
}

class CudaMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
    compute_on(ctx_, {Device::Kind::cuda, 0});
  }
  Tensor ramp(int64_t n, int64_t first = 0) const {
    Tensor t = Tensor::empty(ctx_.host, {n}, DType::f32);
    for (int64_t i = 0; i < n; ++i) t.data<float>()[i] = static_cast<float>(first + i);
    return t;
  }
  float value(const Tensor& t, size_t at) const {
    const Reading<float> reading = ctx_.read<float>(t);
    return reading.get()[at];
  }
  Context ctx_;
};

TEST_F(CudaMemory, ValuesComeBackAsTheyWereSent) {
  const Reading<float> back = ctx_.read<float>(ctx_.upload(ramp(1000)));
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(back.get()[i], static_cast<float>(i));
}

// The host's memory is used again only after the copy has read it.
TEST_F(CudaMemory, UploadsKeepTheirSource) {
  std::vector<Tensor> sent;
  for (int64_t round = 0; round < 20; ++round) sent.push_back(ctx_.upload(ramp(100, round)));
  for (size_t round = 0; round < sent.size(); ++round) EXPECT_EQ(value(sent[round], 0), static_cast<float>(round));
}

TEST_F(CudaMemory, AReadingThatNobodyWaitsForHarmsNoOtherTensor) {
  const Tensor sent = ctx_.upload(ramp(64));
  static_cast<void>(ctx_.read<float>(sent));
  const Tensor next = ramp(64);  // must not take the memory into which the copy will write
  Tensor zeros = Tensor::zeros(ctx_.allocator, {64}, DType::f32);
  static_cast<void>(ctx_.read<float>(zeros));
  value(zeros, 0);
  for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(next.data<float>()[i], static_cast<float>(i));
}

TEST_F(CudaMemory, ZeroCloneAndCopyRunOnTheDevice) {
  Tensor t = ctx_.upload(ramp(10));
  const Tensor same = t.clone();
  t.zero();
  EXPECT_EQ(value(same, 9), 9);
  EXPECT_EQ(value(t, 9), 0);
  t.copy_from(same);
  EXPECT_EQ(value(t, 9), 9);
}

TEST_F(CudaMemory, VectorsAreUploaded) {
  const Uploaded<int32_t> ids = ctx_.upload(std::vector<int32_t>{3, 1, 2});
  EXPECT_EQ(ids.size(), 3);
  const Uploaded<int32_t> none = ctx_.upload(std::vector<int32_t>{});
  EXPECT_EQ(none.size(), 0);
}

// Equal arrays are one array while one of them is in use, but not those of several ranks.
TEST_F(CudaMemory, EqualVectorsAreUploadedOnce) {
  CudaDevice& device = cuda_device(0);
  const auto uploads = [&] { return device.counts().uploads.times; };
  Context other;
  compute_on(other, {Device::Kind::cuda, 0});
  const int64_t before = uploads();
  Uploaded<int32_t> first = ctx_.upload(std::vector<int32_t>{3, 1, 2});
  EXPECT_EQ(ctx_.upload(std::vector<int32_t>{3, 1, 2}).data(), first.data());
  EXPECT_EQ(uploads() - before, 1);
  EXPECT_NE(ctx_.upload(std::vector<int32_t>{3, 1, 4}).data(), first.data());
  EXPECT_NE(other.upload(std::vector<int32_t>{3, 1, 2}).data(), first.data());
  EXPECT_EQ(uploads() - before, 3);
  first = {};
  const Uploaded<int32_t> again = ctx_.upload(std::vector<int32_t>{3, 1, 2});
  EXPECT_EQ(uploads() - before, 4);
  const std::vector<int32_t> large(UploadCache::kMostBytes);
  const Uploaded<int32_t> a = ctx_.upload(large), b = ctx_.upload(large);
  EXPECT_NE(a.data(), b.data());
  for (int32_t k = 0; k < 1000; ++k) (void)ctx_.upload(std::vector<int32_t>{k});  // unused entries are removed
  EXPECT_EQ(ctx_.upload(std::vector<int32_t>{3, 1, 2}).data(), again.data());
}

TEST_F(CudaMemory, BytesAreCountedByRank) {
  Context other;
  compute_on(other, {Device::Kind::cuda, 0});
  const Tensor t = ctx_.empty({1000});
  EXPECT_EQ(ctx_.allocator->stats().total, 4000);
  EXPECT_EQ(other.allocator->stats().total, 0);
}

TEST_F(CudaMemory, TheHostMayNotReadIt) {
  const Tensor t = ctx_.upload(ramp(4));
  EXPECT_THROW(static_cast<void>(t.values<float>()), InternalError);
}

// More tiles than a grid has in its second dimension.
TEST_F(CudaMemory, TallMatricesAreTransposed) {
  const int64_t rows = (int64_t{1} << 21) + 1;
  Tensor tall = Tensor::zeros(ctx_.host, {rows, 1}, DType::f32);
  tall.data<float>()[rows - 1] = 3;
  const Tensor wide = transposed(ctx_, ctx_.upload(tall), DType::f32);
  EXPECT_EQ(wide.shape(), (Shape{1, rows}));
  EXPECT_EQ(value(wide, static_cast<size_t>(rows - 1)), 3);
}

TEST_F(CudaMemory, MoreThanTheDeviceHasIsOneError) {
  EXPECT_THAT(lmx_test::run_error([&] { ctx_.empty({int64_t{1} << 40}); }),
              lmx_test::Names("cuda:0", "4.4 TB (activations)", "the device has "));
}

class CudaGemm : public testing::TestWithParam<std::tuple<DType, bool, bool>> {
 protected:
  static void expect_equal_to_cpu(int64_t m, int64_t n, int64_t k);
};

// Twice the product, because beta = 1 adds it to the CPU's.
void CudaGemm::expect_equal_to_cpu(int64_t m, int64_t n, int64_t k) {
  SCOPED_TRACE(testing::Message() << "(" << m << ", " << k << ") x (" << k << ", " << n << ")");
  const auto [type, ta, tb] = GetParam();
  Context host, device;
  compute_on(device, {Device::Kind::cuda, 0});
  Tensor a = host.empty(ta ? Shape{k, m} : Shape{m, k}), b = host.empty(tb ? Shape{n, k} : Shape{k, n});
  initialise(a, {"uniform", 1.0}, RandomKey(1));
  initialise(b, {"uniform", 1.0}, RandomKey(2));
  a = a.to(type);
  b = b.to(type);
  Tensor c = host.zeros({m, n}, type == DType::f64 ? type : DType::f32);
  gemm(host, a, ta, b, tb, c);
  Tensor on_device = copy_to(c, device.allocator);
  gemm(device, copy_to(a, device.allocator), ta, copy_to(b, device.allocator), tb, on_device, 1.0f);
  const Tensor got = copy_to(on_device, host.allocator).to(DType::f64), want = c.to(DType::f64);
  for (int64_t i = 0; i < want.numel(); ++i) ASSERT_NEAR(got.data<double>()[i], 2 * want.data<double>()[i], 1e-4) << i;
}

TEST_P(CudaGemm, EqualsTheCpu) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  expect_equal_to_cpu(37, 64, 50);
}

// A result in the type of the operands is the CPU's up to one rounding of a sum.
TEST_P(CudaGemm, RoundsA16BitResultOnce) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  const auto [type, ta, tb] = GetParam();
  if (size_of(type) != 2) return;
  Context host, device;
  compute_on(device, {Device::Kind::cuda, 0});
  const int64_t m = 9, n = 24, k = 16;
  Tensor a = host.empty(ta ? Shape{k, m} : Shape{m, k}), b = host.empty(tb ? Shape{n, k} : Shape{k, n});
  initialise(a, {"uniform", 1.0}, RandomKey(1));
  initialise(b, {"uniform", 1.0}, RandomKey(2));
  a = a.to(type);
  b = b.to(type);
  Tensor sums = host.empty({m, n}), rounded = device.empty({m, n}, type);
  gemm(host, a, ta, b, tb, sums);
  gemm(device, copy_to(a, device.allocator), ta, copy_to(b, device.allocator), tb, rounded);
  // Half of the distance between two numbers of the type.
  const double unit = type == DType::bf16 ? 0x1p-9 : 0x1p-12;
  const auto expect = [&](const Tensor& given, const Tensor& want) {
    const Tensor values = copy_to(given, host.allocator).to(DType::f64);
    for (int64_t i = 0; i < want.numel(); ++i) {
      const double value = want.data<double>()[i];
      ASSERT_NEAR(values.data<double>()[i], value, unit * std::exp2(std::ceil(std::log2(std::abs(value)))) + 1e-6) << i;
    }
  };
  Tensor want = sums.to(DType::f64);
  expect(rounded, want);
  const Tensor first = copy_to(rounded, host.allocator).to(DType::f64);
  gemm(device, copy_to(a, device.allocator), ta, copy_to(b, device.allocator), tb, rounded, 1.0f);
  for (int64_t i = 0; i < want.numel(); ++i) want.data<double>()[i] += first.data<double>()[i];
  expect(rounded, want);
}

// An algorithm that loads 16 bytes at once suits leading dimensions that are multiples of 16 bytes. The rows of a
// transposed `a` are one, so the algorithm that was chosen for 128 rows must not serve 127.
TEST_P(CudaGemm, NumbersOfRowsOfOneBucketMayBeOdd) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  for (const int64_t rows : {128, 127, 120, 1}) expect_equal_to_cpu(rows, 8, 16);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaGemm,
                         testing::Combine(testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                                          testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace lmx
