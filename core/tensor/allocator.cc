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

// The size class: at least 64 bytes, then eighths of powers of two, so at most 12.5 % of a block is unused.
size_t round_up(size_t bytes) {
  if (bytes <= 512) return std::max<size_t>(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  const size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

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

}  // namespace

std::shared_ptr<Allocator> Allocator::cpu() {
  return std::make_shared<CpuAllocator>();
}

void* CachingAllocator::allocate(size_t bytes, MemClass c) {
  const size_t size = round_up(bytes);
  const std::lock_guard lock(mutex_);
  void* block = nullptr;
  if (std::vector<void*>& cached = cache_[size]; !cached.empty()) {
    block = cached.back();
    cached.pop_back();
  } else {
    block = take_or_fail(size);
  }
  const auto i = static_cast<size_t>(c);
  stats_.current[i] += static_cast<int64_t>(size);
  stats_.total += static_cast<int64_t>(size);
  stats_.peak[i] = std::max(stats_.peak[i], stats_.current[i]);
  stats_.total_peak = std::max(stats_.total_peak, stats_.total);
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
        str("[memory] ", name_of(device()), " cannot allocate ", size, " bytes: ", stats_.total, " bytes are in use"));
  }
  stats_.reserved += static_cast<int64_t>(size);
  return block;
}

void CachingAllocator::release(void* block, size_t bytes, MemClass c) noexcept {
  const size_t size = round_up(bytes);
  const std::lock_guard lock(mutex_);
  stats_.current[static_cast<size_t>(c)] -= static_cast<int64_t>(size);
  stats_.total -= static_cast<int64_t>(size);
  cache_[size].push_back(block);
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak = stats_.current;
  stats_.total_peak = stats_.total;
}

void CachingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void CachingAllocator::trim_locked() {
  for (auto& [size, blocks] : cache_) {
    for (void* block : blocks) give_back(block);
    stats_.reserved -= static_cast<int64_t>(size * blocks.size());
    blocks.clear();
  }
}

}  // namespace lmx
