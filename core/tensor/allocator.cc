// The CPU's caching allocator. Blocks come from the system in size classes (an eighth apart), so a freed block fits the
// next request of about its size; large ones are aligned to huge pages, whose faults cost a fraction of small pages'.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "lmx/error.h"
#include "lmx/memory.h"

namespace lmx {

Allocator::~Allocator() = default;

std::string name_of(Device device) {
  return device.kind == Device::Kind::cpu ? "cpu" : str("cuda:", device.index);
}

const char* name_of(MemClass c) {
  constexpr const char* kNames[kMemClasses] = {"parameters", "gradients",     "optimizer",
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

class CpuAllocator final : public Allocator {
 public:
  ~CpuAllocator() override { trim(); }

  Device device() const override { return {}; }

  void* allocate(size_t bytes, MemClass c) override {
    const size_t size = round_up(bytes);
    const std::lock_guard lock(mutex_);
    void* block = take_cached(size);
    if (!block) block = take_new(size);
    count(static_cast<int64_t>(size), c);
    return block;
  }

  void release(void* block, size_t bytes, MemClass c) noexcept override {
    const size_t size = round_up(bytes);
    const std::lock_guard lock(mutex_);
    stats_.current[static_cast<size_t>(c)] -= static_cast<int64_t>(size);
    stats_.total -= static_cast<int64_t>(size);
    cache_[size].push_back(block);
  }

  MemoryStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    stats_.peak = stats_.current;
    stats_.total_peak = stats_.total;
  }

  void trim() override {
    const std::lock_guard lock(mutex_);
    trim_locked();
  }

 private:
  void* take_cached(size_t size) {
    const auto it = cache_.find(size);
    if (it == cache_.end() || it->second.empty()) return nullptr;
    void* block = it->second.back();
    it->second.pop_back();
    return block;
  }

  void* take_new(size_t size) {
    const size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
    void* block = nullptr;
    if (posix_memalign(&block, alignment, size) != 0) {
      trim_locked();
      if (posix_memalign(&block, alignment, size) != 0) {
        throw RunError(str("[memory] cannot allocate ", size, " bytes: ", stats_.total, " bytes are in use"));
      }
    }
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);
    stats_.reserved += static_cast<int64_t>(size);
    return block;
  }

  void trim_locked() {
    for (auto& [size, blocks] : cache_) {
      for (void* block : blocks) std::free(block);
      stats_.reserved -= static_cast<int64_t>(size * blocks.size());
      blocks.clear();
    }
  }

  void count(int64_t size, MemClass c) {
    const auto i = static_cast<size_t>(c);
    stats_.current[i] += size;
    stats_.total += size;
    stats_.peak[i] = std::max(stats_.peak[i], stats_.current[i]);
    stats_.total_peak = std::max(stats_.total_peak, stats_.total);
  }

  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> cache_;
  MemoryStats stats_;
};

}  // namespace

std::shared_ptr<Allocator> Allocator::cpu() { return std::make_shared<CpuAllocator>(); }

}  // namespace lmx
