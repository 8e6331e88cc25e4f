// The CUDA seam. Without a device: nothing is missing and the messages say so. With one: its kernels against the CPU's.
#include "backend/cuda.h"

#include <gtest/gtest.h>

#include "lmx/error.h"
#include "lmx/matmul.h"
#include "lmx/parameters.h"

namespace lmx {
namespace {

TEST(Cuda, WithoutADeviceTheMessageSaysSo) {
  if (load_cuda() > 0) GTEST_SKIP() << "a CUDA device answers";
  EXPECT_EQ(load_cuda(), 0);
  try {
    cuda_allocator(0);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "[cuda] no device cuda:0; 0 answer");
  }
}

TEST(Cuda, CopyOnTheHostWorksWithoutCuda) {
  const auto cpu = Allocator::cpu();
  const Tensor t = Tensor::from<int32_t>(cpu, {3}, std::vector<int32_t>{1, 2, 3});
  EXPECT_EQ(copy_to(t, cpu).data<int32_t>()[2], 3);
}

class CudaGemm : public testing::TestWithParam<std::tuple<DType, bool, bool>> {};

TEST_P(CudaGemm, EqualsTheCpu) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  const auto [type, ta, tb] = GetParam();
  Context host, device;
  device.allocator = cuda_allocator(0);
  device.device = device.allocator->device();
  const int64_t m = 37, n = 64, k = 50;
  Tensor a = host.empty(ta ? Shape{k, m} : Shape{m, k}), b = host.empty(tb ? Shape{n, k} : Shape{k, n});
  initialise(a, {"uniform", 1.0}, RandomKey(1));
  initialise(b, {"uniform", 1.0}, RandomKey(2));
  a = a.to(type);
  b = b.to(type);
  Tensor c = host.zeros({m, n}, type == DType::f64 ? type : DType::f32);
  gemm(host, a, ta, b, tb, c);
  Tensor on_device = copy_to(c, device.allocator);  // beta = 1 doubles the product
  gemm(device, copy_to(a, device.allocator), ta, copy_to(b, device.allocator), tb, on_device, 1.0f);
  const Tensor got = copy_to(on_device, host.allocator).to(DType::f64), want = c.to(DType::f64);
  for (int64_t i = 0; i < want.numel(); ++i) ASSERT_NEAR(got.data<double>()[i], 2 * want.data<double>()[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Types, CudaGemm,
                         testing::Combine(testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                                          testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace lmx
