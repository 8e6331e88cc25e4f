#include "lmx/tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "lmx/context.h"
#include "lmx/error.h"
#include "test.h"

namespace lmx {
namespace {

const std::shared_ptr<Allocator> kCpu = Allocator::cpu();

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(Shape({2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(str(Shape{5, 7}), "(5, 7)");
  EXPECT_FALSE((Shape{1, 2}) == (Shape{1, 2, 1}));
}

TEST(Tensor, ViewsShareStorage) {
  Tensor t = Tensor::zeros(kCpu, {4, 3}, DType::f32);
  Tensor rows = t.slice(1, 3);
  rows.data<float>()[0] = 5;
  EXPECT_EQ(t.data<float>()[3], 5);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(t.reshape({2, -1}).shape(), (Shape{2, 6}));
  EXPECT_THROW(t.reshape({5, 3}), InternalError);
  EXPECT_THROW(t.slice(2, 5), InternalError);
}

TEST(Tensor, CloneDoesNotShare) {
  Tensor t = Tensor::zeros(kCpu, {3}, DType::i32);
  Tensor copy = t.clone();
  copy.data<int32_t>()[1] = 9;
  EXPECT_EQ(t.data<int32_t>()[1], 0);
}

TEST(Tensor, ReadingAnotherTypeNamesBoth) {
  const Tensor t = Tensor::zeros(kCpu, {2, 2}, DType::bf16);
  EXPECT_THAT(lmx_test::error_of<InternalError>([&] { t.data<float>(); }), lmx_test::Names("f32 of (2, 2) bf16"));
}

TEST(Tensor, EmptyTensorsWork) {
  Tensor t = Tensor::zeros(kCpu, {0, 5}, DType::f64);
  EXPECT_EQ(t.numel(), 0);
  EXPECT_EQ(t.clone().shape(), (Shape{0, 5}));
  EXPECT_EQ(t.slice(0, 0).numel(), 0);
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(bfloat16(1.0f)), 1.0f);
  EXPECT_EQ(static_cast<float>(bfloat16(1.00390625f)), 1.0f);       // a tie: down to even
  EXPECT_EQ(static_cast<float>(bfloat16(1.01171875f)), 1.015625f);  // a tie: up to even
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bfloat16(std::numeric_limits<float>::max()))));
}

TEST(DType, F16RoundsAndOverflows) {
  EXPECT_EQ(static_cast<float>(float16(65504.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(static_cast<float>(float16(65536.0f))));
  EXPECT_EQ(static_cast<float>(float16(1e-8f)), 0.0f);
}

TEST(DType, NamesRoundTripAndSuggest) {
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8}) {
    EXPECT_EQ(dtype_from_name(name_of(t)), t);
  }
  EXPECT_THROW(dtype_from_name("float"), UserError);
}

TEST(Tensor, ConvertsBetweenFloatingTypes) {
  const std::vector<float> values{0.f, -1.5f, 3.14159f, 65504.f};
  const Tensor t = Tensor::from<float>(kCpu, {4}, values);
  EXPECT_EQ(t.to(DType::f64).to(DType::f32).data<float>()[2], 3.14159f);
  EXPECT_EQ(t.to(DType::bf16).to(DType::f32).data<float>()[1], -1.5f);
  EXPECT_EQ(t.to(DType::f16).to(DType::f64).data<double>()[3], 65504.0);
}

TEST(Allocator, CountsBytesByClassAndReusesBlocks) {
  const std::shared_ptr<Allocator> a = Allocator::cpu();
  void* first = nullptr;
  {
    Tensor t = Tensor::empty(a, {1024}, DType::f32, MemClass::gradients);
    first = t.raw();
    EXPECT_EQ(a->stats().current[static_cast<size_t>(MemClass::gradients)], 4096);
    Tensor u = Tensor::empty(a, {256}, DType::f32, MemClass::parameters);
    EXPECT_EQ(a->stats().total, 4096 + 1024);
  }
  EXPECT_EQ(a->stats().total, 0);
  EXPECT_EQ(a->stats().total_peak, 4096 + 1024);
  EXPECT_GT(a->stats().reserved, 0);
  EXPECT_EQ(Tensor::empty(a, {1024}, DType::f32).raw(), first);
  a->trim();
  EXPECT_EQ(a->stats().reserved, 0);
  a->reset_peak();
  EXPECT_EQ(a->stats().total_peak, 0);
}

TEST(Allocator, ALargerBlockServesAndGoesBackWhole) {
  const std::shared_ptr<Allocator> a = Allocator::cpu();
  void* large = Tensor::empty(a, {12'000}, DType::u8).raw();
  EXPECT_EQ(Tensor::empty(a, {9'000}, DType::u8).raw(), large);
  EXPECT_EQ(Tensor::empty(a, {12'000}, DType::u8).raw(), large);
  EXPECT_NE(Tensor::empty(a, {6'000}, DType::u8).raw(), large);  // more than a third of it would lie idle
}

// Shapes that never come again, as sub-batches of sentences have them.
TEST(Allocator, WhatIsCachedIsBounded) {
  const std::shared_ptr<Allocator> a = Allocator::cpu();
  uint64_t state = 1;
  int64_t most = 0;
  for (int step = 0; step < 300; ++step) {
    std::vector<Tensor> live;
    for (int i = 0; i < 40; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      live.push_back(
          Tensor::empty(a, {int64_t{1} << (10 + state % 11), 1 + static_cast<int64_t>(state >> 40) % 17}, DType::u8));
      live.back().data<uint8_t>()[0] = 1;
    }
    most = std::max(most, a->stats().reserved);
  }
  EXPECT_EQ(a->stats().total, 0);
  EXPECT_LT(most, std::max(a->stats().total_peak * 3 / 2, a->stats().total_peak + (int64_t{64} << 20)) * 9 / 8);
}

TEST(Allocator, BlocksAreAligned) {
  for (int64_t n : {1, 3, 100, 5000, 3'000'000}) {
    const Tensor t = Tensor::empty(kCpu, {n}, DType::u8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 64, 0u) << n;
  }
}

TEST(Allocator, OutOfMemoryNamesTheSizeAndItsUsers) {
  const auto cpu = Allocator::cpu();
  const Tensor weights = Tensor::empty(cpu, {1000, 500}, DType::f32, MemClass::parameters);
  const std::vector<Tensor> batch(2, Tensor::empty(cpu, {1000, 100}, DType::f32));
  const Tensor other = Tensor::empty(cpu, {1000, 100}, DType::f32);
  static_cast<void>(Tensor::empty(cpu, {1000, 1000}, DType::f32));  // is free again
  const Tensor small = Tensor::empty(cpu, {10}, DType::f32);
  EXPECT_EQ(
      lmx_test::run_error([&] { cpu->allocate(size_t{1} << 46, MemClass::activations); }),
      "[memory] cpu cannot allocate 70 TB (activations): 2.8 MB are in use: parameters 2.0 MB, activations "
      "800 kB. The largest tensors: 1 of 2.0 MB (parameters), 2 of 400 kB (activations). A smaller batch "
      "(batch.micro or batch.global, --batch, --samples) reduces the activations, a smaller model everything else");
}

// A tensor in the memory of a device is set, copied and cloned by its allocator, and the host does not read it.

using testing::ElementsAre;

// Memory that counts as a device's, with a record of the operations on it.
class Recording final : public Allocator {
 public:
  Device device() const override { return {Device::Kind::cuda, 0}; }
  void* allocate(size_t bytes, MemClass c) override { return host_->allocate(bytes, c); }
  void release(void* block, size_t bytes, MemClass c) noexcept override { host_->release(block, bytes, c); }
  void zero(void* block, size_t bytes) const override {
    ++zeros;
    std::memset(block, 0, bytes);
  }
  void copy(void* to, const void* from, size_t bytes) const override {
    ++copies;
    std::memmove(to, from, bytes);
  }
  void charge(size_t bytes, MemClass c) override { host_->charge(bytes, c); }
  void discharge(size_t bytes, MemClass c) noexcept override { host_->discharge(bytes, c); }
  MemoryStats stats() const override { return host_->stats(); }
  void reset_peak() override { host_->reset_peak(); }
  void trim() override { host_->trim(); }
  mutable int zeros = 0, copies = 0;

 private:
  std::shared_ptr<Allocator> host_ = Allocator::cpu();
};

TEST(DeviceTensor, TheAllocatorSetsAndCopies) {
  const auto device = std::make_shared<Recording>();
  Tensor a = Tensor::zeros(device, {2, 3}, DType::f32);
  EXPECT_EQ(device->zeros, 1);
  a.data<float>()[4] = 7;
  const Tensor b = a.clone();
  EXPECT_EQ(device->copies, 1);
  EXPECT_EQ(b.data<float>()[4], 7);
  Tensor row = Tensor::empty(device, {1, 3}, DType::f32);
  row.copy_from(b.slice(1, 2));
  EXPECT_EQ(device->copies, 2);
  EXPECT_EQ(row.data<float>()[1], 7);
}

// A rank that counts its part of a pool uses the operations of the pool.
TEST(DeviceTensor, ACountingAllocatorUsesThePoolsOperations) {
  const auto device = std::make_shared<Recording>();
  const auto rank = Allocator::counting(device);
  const Tensor a = Tensor::zeros(rank, {4}, DType::f32);
  static_cast<void>(a.clone());
  EXPECT_EQ(device->zeros, 1);
  EXPECT_EQ(device->copies, 1);
}

// Memory that is shared by ranks is taken from their pool, and counted by none of them.
TEST(DeviceTensor, AnAllocatorOfACountingAllocatorUsesItsPoolAlone) {
  const auto device = std::make_shared<Recording>();
  const auto rank = Allocator::counting(device), other = Allocator::counting(rank);
  const Tensor a = Tensor::empty(other, {4}, DType::f32);
  EXPECT_EQ(rank->stats().total, 0);
  EXPECT_GT(other->stats().total, 0);
  EXPECT_EQ(other->device(), device->device());
}

TEST(DeviceTensor, TheHostReadsAndWritesItsOwnMemoryOnly) {
  const auto device = std::make_shared<Recording>();
  Tensor a = Tensor::zeros(device, {2}, DType::f32);
  EXPECT_THROW(a.values<float>(), InternalError);
  EXPECT_THROW(std::as_const(a).values<float>(), InternalError);
  const std::vector<float> two{1, 2};
  EXPECT_THROW(Tensor::from<float>(device, {2}, two), InternalError);
  EXPECT_THROW(a.copy_from(Tensor::from<float>(Allocator::cpu(), {2}, two)), InternalError);
}

TEST(Transfers, CostNothingOnTheCpu) {
  Context ctx;
  const Tensor t = Tensor::from<int32_t>(ctx.host, {3}, std::vector<int32_t>{4, 5, 6});
  EXPECT_EQ(ctx.upload(t).raw(), t.raw());
  std::vector<int64_t> values{1, 2, 3};
  const int64_t* data = values.data();
  const Uploaded<int64_t> uploaded = ctx.upload(std::move(values));
  EXPECT_EQ(uploaded.data(), data);
  EXPECT_EQ(uploaded.size(), 3);
  const Reading<int32_t> reading = ctx.read<int32_t>(t);
  EXPECT_EQ(reading.get().data(), t.values<int32_t>().data());
  EXPECT_THAT(reading.get(), ElementsAre(4, 5, 6));
}

}  // namespace
}  // namespace lmx
