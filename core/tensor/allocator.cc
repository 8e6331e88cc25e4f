// Blocks come from the system in size classes (an eighth apart), so a freed block fits the next request of about its
// size; large ones of the CPU are aligned to huge pages, whose faults cost a fraction of small pages'.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "lmx/error.h"
#include "tensor/caching_allocator.h"

namespace lmx {

Allocator::~Allocator() = default;

std::string name_of(Device device) {
  return device.kind == Device::Kind::cpu ? "cpu" : str("cuda:", device.index);
}

const char* name_of(MemClass c) {
  constexpr const char* kNames[kMemClasses] = {"parameters",  "gradients",     "optimizer",
                                               "activations", "communication", "other"};
  return kNames[static_cast<size_t>(c)];
}

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

class CpuAllocator final : public CachingAllocator {
 public:
  ~CpuAllocator() override { trim(); }
  Device device() const override { return {}; }

 protected:
  void* take(size_t size) override {
    void* block = nullptr;
    if (posix_memalign(&block, size >= kHugePage ? kHugePage : kAlignment, size) != 0) return nullptr;
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);
    return block;
  }
  void give_back(void* block) override { std::free(block); }
};

class CountingAllocator final : public Allocator {
 public:
  explicit CountingAllocator(std::shared_ptr<Allocator> pool) : pool_(std::move(pool)) {}
  Device device() const override { return pool_->device(); }
  void* allocate(size_t bytes, MemClass c) override {
    void* block = pool_->allocate(bytes, c);
    charge(bytes, c);
    return block;
  }
  void release(void* block, size_t bytes, MemClass c) noexcept override {
    pool_->release(block, bytes, c);
    discharge(bytes, c);
  }
  void charge(size_t bytes, MemClass c) override {
    const std::lock_guard lock(mutex_);
    counter_.add(bytes, c);
  }
  void discharge(size_t bytes, MemClass c) noexcept override {
    const std::lock_guard lock(mutex_);
    counter_.remove(bytes, c);
  }
  MemoryStats stats() const override {
    const std::lock_guard lock(mutex_);
    return counter_.stats;
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    counter_.reset_peak();
  }
  void trim() override { pool_->trim(); }

 private:
  std::shared_ptr<Allocator> pool_;
  mutable std::mutex mutex_;
  MemoryCounter counter_;
};

}  // namespace

size_t block_size(size_t bytes) {
  if (bytes <= 512) return std::max<size_t>(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  const size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

std::shared_ptr<Allocator> Allocator::cpu() {
  return std::make_shared<CpuAllocator>();
}

std::shared_ptr<Allocator> Allocator::counting(std::shared_ptr<Allocator> pool) {
  return std::make_shared<CountingAllocator>(std::move(pool));
}

void* CachingAllocator::allocate(size_t bytes, MemClass c) {
  const size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  void* block = nullptr;
  if (std::vector<void*>& cached = cache_[size]; !cached.empty()) {
    block = cached.back();
    cached.pop_back();
  } else {
    block = take_or_fail(size);
  }
  counter_.add(bytes, c);
  return block;
}

void* CachingAllocator::take_or_fail(size_t size) {
  void* block = take(size);
  if (!block) {
    trim_locked();
    block = take(size);
  }
  if (!block) {
    throw RunError(
        str("[memory] ", name_of(device()), " cannot allocate ", size, " bytes: ", counter_.stats.total, " bytes are in use"));
  }
  counter_.stats.reserved += static_cast<int64_t>(size);
  return block;
}

void CachingAllocator::release(void* block, size_t bytes, MemClass c) noexcept {
  const size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  counter_.remove(bytes, c);
  cache_[size].push_back(block);
}

void CachingAllocator::charge(size_t bytes, MemClass c) {
  const std::lock_guard lock(mutex_);
  counter_.add(bytes, c);
}

void CachingAllocator::discharge(size_t bytes, MemClass c) noexcept {
  const std::lock_guard lock(mutex_);
  counter_.remove(bytes, c);
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return counter_.stats;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  counter_.reset_peak();
}

void CachingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void CachingAllocator::trim_locked() {
  for (auto& [size, blocks] : cache_) {
    for (void* block : blocks) give_back(block);
    counter_.stats.reserved -= static_cast<int64_t>(size * blocks.size());
    blocks.clear();
  }
}

}  // namespace lmx
