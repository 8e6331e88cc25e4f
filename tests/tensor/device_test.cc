// A tensor in the memory of a device is set, copied and cloned by its allocator, and the host does not read it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lmx/context.h"
#include "lmx/error.h"
#include "lmx/tensor.h"

namespace lmx {
namespace {

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
