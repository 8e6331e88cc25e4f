// The errors that the emulated device finds: each one ends in a message, or in wrong data in every run. A correct twin
// of each kernel runs without either.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "cuda_emulator/kernels_for_tests.h"
#include "cuda_emulator/simt.h"

namespace cuda_emulator {
namespace {

using namespace testing_kernels;

constexpr Order kOrders[] = {Order::ascending, Order::descending, Order::scrambled};

struct DeviceArray {
  explicit DeviceArray(const std::vector<float>& values) : size(values.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), size * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data, values.data(), size * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data); }
  std::vector<float> get() const {
    std::vector<float> values(size);
    EXPECT_EQ(cudaMemcpy(values.data(), data, size * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }
  float* data = nullptr;
  size_t size;
};

std::vector<float> ramp(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

// Launches `kernel` by its name.
#define START(blocks, threads, shared, kernel, ...) \
  start(#kernel, blocks, threads, shared, kernel __VA_OPT__(, ) __VA_ARGS__)
template <class... P, class... A>
cudaError_t start(const char* name, dim3 blocks, dim3 threads, size_t shared, void (*kernel)(P...), A... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  name_next_kernel(name);
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

class Emulator : public testing::Test {
 protected:
  void TearDown() override { set_order(Order::ascending); }
};

TEST_F(Emulator, RunsAPointwiseKernelInEveryOrder) {
  for (const Order order : kOrders) {
    set_order(order);
    const DeviceArray x(ramp(1000)), y(ramp(1000));
    ASSERT_EQ(START(4, 256, 0, axpy, int64_t{1000}, 2.0f, x.data, y.data), cudaSuccess);
    const std::vector<float> got = y.get();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 3 * static_cast<float>(i));
  }
}

TEST_F(Emulator, ALargeArgumentArrivesUnchanged) {
  Table table{};
  for (auto& entry : table.entries)
    for (int64_t& value : entry) value = (int64_t{1} << 40) + 1;
  int64_t* sum = nullptr;
  int64_t got = 0;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&sum), sizeof got), cudaSuccess);
  ASSERT_EQ(START(1, 1, 0, sum_table, table, sum), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(got, ((int64_t{1} << 40) + 1) * 52 * 9);
  ASSERT_EQ(cudaFree(sum), cudaSuccess);
}

// The largest difference of each row's sum from 1, and of its first element from the expected one.
double softmax_error(bool barrier) {
  constexpr int kWidth = 64, kRows = 3;
  std::vector<float> values(kWidth * kRows);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const DeviceArray x(values), y(std::vector<float>(values.size()));
  EXPECT_EQ(START(kRows, kWidth, kWidth * sizeof(float), softmax_rows, kWidth, x.data, y.data, barrier), cudaSuccess);
  const std::vector<float> got = y.get();
  double worst = 0;
  for (int row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int i = 0; i < kWidth; ++i)
      sum += std::exp(static_cast<double>(values[static_cast<size_t>(row * kWidth + i)]));
    for (int i = 0; i < kWidth; ++i) {
      const auto at = static_cast<size_t>(row * kWidth + i);
      worst = std::max(worst, std::abs(static_cast<double>(got[at]) - std::exp(static_cast<double>(values[at])) / sum));
    }
  }
  return worst;
}

TEST_F(Emulator, FindsAMissingBarrierInOneOfTheOrders) {
  double missing = 0;
  for (const Order order : kOrders) {
    set_order(order);
    EXPECT_LT(softmax_error(true), 1e-6);
    missing = std::max(missing, softmax_error(false));
  }
  EXPECT_GT(missing, 1e-3);
}

TEST_F(Emulator, ExchangesValuesInAWarp) {
  for (const Order order : kOrders) {
    set_order(order);
    const DeviceArray x(ramp(96)), sums(std::vector<float>(3));
    ASSERT_EQ(START(1, 96, 0, warp_sums, x.data, sums.data), cudaSuccess);
    EXPECT_EQ(sums.get(), (std::vector<float>{496, 1520, 2544}));
  }
}

TEST_F(Emulator, CountsVotes) {
  unsigned* votes = nullptr;
  int* total = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&votes), 8);
  cudaMalloc(reinterpret_cast<void**>(&total), 4);
  START(1, 64, 0, count_votes, votes, total);
  unsigned ballot[2];
  int count = 0;
  cudaMemcpy(ballot, votes, sizeof ballot, cudaMemcpyDeviceToHost);
  cudaMemcpy(&count, total, sizeof count, cudaMemcpyDeviceToHost);
  EXPECT_EQ(ballot[0], 0x49249249u);
  EXPECT_EQ(ballot[1], 0x92492492u);
  EXPECT_EQ(count, 13);
  cudaFree(votes);
  cudaFree(total);
}

TEST_F(Emulator, FreshMemoryIsNotANumber) {
  float* block = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&block), 400), cudaSuccess);
  float values[100];
  cudaMemcpy(values, block, 400, cudaMemcpyDeviceToHost);
  for (const float v : values) EXPECT_TRUE(std::isnan(v));
  cudaFree(block);
}

TEST_F(Emulator, RefusesLaunchesBeyondTheLimits) {
  const DeviceArray y({0});
  EXPECT_EQ(START(1, 1025, 0, set_one, y.data, 1.0f), cudaErrorInvalidConfiguration);
  EXPECT_EQ(START(0, 1, 0, set_one, y.data, 1.0f), cudaErrorInvalidConfiguration);
  EXPECT_EQ(START(dim3(1, 65536), 1, 0, set_one, y.data, 1.0f), cudaErrorInvalidConfiguration);
  EXPECT_EQ(START(1, 1, 60000, set_one, y.data, 1.0f), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(set_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000), cudaSuccess);
  EXPECT_EQ(START(1, 1, 60000, set_one, y.data, 1.0f), cudaSuccess);
  EXPECT_EQ(y.get()[0], 1);
}

TEST_F(Emulator, ReportsMemoryThatIsUsedUp) {
  size_t available = 0, total = 0;
  cudaMemGetInfo(&available, &total);
  void* block = nullptr;
  EXPECT_EQ(cudaMalloc(&block, total + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

using EmulatorDeathTest = Emulator;

TEST_F(EmulatorDeathTest, HostAccessOfDeviceMemory) {
  const DeviceArray x(ramp(10));
  EXPECT_DEATH({ x.data[2] = 1; }, "host accessed device memory: byte 8 of allocation [0-9]+, which has 40 bytes");
}

TEST_F(EmulatorDeathTest, AKernelThatGetsHostMemory) {
  float on_host = 0;
  EXPECT_DEATH(START(1, 1, 0, set_one, &on_host, 1.0f), "\\[set_one\\] byte 0 of an argument is the address of host");
}

TEST_F(Emulator, AnAddressInThePaddingOfAnArgumentIsNoArgument) {
  alignas(256) float on_host = 0;  // the lowest byte of its address is false
  const float* address = &on_host;
  Padded argument{};
  static_assert(sizeof argument == 8 + sizeof address);
  std::memcpy(reinterpret_cast<std::byte*>(&argument) + 8, &address, sizeof address);
  EXPECT_EQ(START(1, 1, 0, get_padded, argument), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(EmulatorDeathTest, AnEarlyKernelThatDoesNotWaitForTheOneBeforeIt) {
  EXPECT_DEATH(
      {
        cudaLaunchAttribute early{};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config;
        config.blockDim = 64;
        config.attrs = &early;
        config.numAttrs = 1;
        name_next_kernel("half_wait");
        cudaLaunchKernelEx(&config, half_wait);
        cudaDeviceSynchronize();
      },
      "\\[half_wait\\].*may start early, and only 32 of the block's 64 threads wait for the kernel before it");
}

TEST_F(EmulatorDeathTest, ABarrierThatNotAllThreadsReach) {
  EXPECT_DEATH(
      {
        START(1, 64, 0, half_meet_barrier);
        cudaDeviceSynchronize();
      },
      "\\[half_meet_barrier\\].*a barrier that only 32 of the block's 64 threads reach");
}

TEST_F(EmulatorDeathTest, AccessBeyondSharedMemory) {
  EXPECT_DEATH(
      {
        START(1, 64, 64 * sizeof(int), beyond_shared);
        cudaDeviceSynchronize();
      },
      "\\[beyond_shared\\] block \\(0, 0, 0\\), thread \\(0, 0, 0\\).*beyond the 256 bytes of shared memory");
}

TEST_F(EmulatorDeathTest, AWriteBeyondAnAllocation) {
  EXPECT_DEATH(
      {
        const DeviceArray x(ramp(10));
        START(1, 1, 0, beyond_allocation, int64_t{10}, x.data);
        cudaDeviceSynchronize();
      },
      "wrote beyond allocation [0-9]+, which has 40 bytes");
}

TEST_F(EmulatorDeathTest, AnUnalignedVector) {
  const DeviceArray x(ramp(16)), y({0});
  ASSERT_EQ(START(1, 1, 0, load_vector, static_cast<const float*>(x.data + 4), y.data), cudaSuccess);
  EXPECT_EQ(y.get()[0], 11);
  EXPECT_DEATH(
      {
        START(1, 1, 0, load_vector, static_cast<const float*>(x.data + 1), y.data);
        cudaDeviceSynchronize();
      },
      "load_vector.*unaligned access");
}

TEST_F(EmulatorDeathTest, AWriteAfterRelease) {
  EXPECT_DEATH(
      {
        float* block = nullptr;
        cudaMalloc(reinterpret_cast<void**>(&block), 1024);
        cudaFree(block);
        START(1, 1, 0, set_one, block, 1.0f);
        cudaDeviceSynchronize();
        cudaMalloc(reinterpret_cast<void**>(&block), 1024);
      },
      "wrote to memory after it was released");
}

TEST_F(EmulatorDeathTest, ACopyThatLeavesItsAllocation) {
  const DeviceArray x(ramp(10));
  float values[11];
  EXPECT_DEATH(cudaMemcpy(values, x.data, sizeof values, cudaMemcpyDeviceToHost),
               "a copy of 44 bytes leaves its allocation");
}

TEST_F(EmulatorDeathTest, ASecondRelease) {
  EXPECT_DEATH(
      {
        void* block = nullptr;
        cudaMalloc(&block, 64);
        cudaFree(block);
        cudaFree(block);
      },
      "released memory that is not allocated");
}

}  // namespace
}  // namespace cuda_emulator
