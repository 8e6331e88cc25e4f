// Blocks are requested from the system in size classes (an eighth apart), so that a freed block fits the next request
// of about its size, or of up to a third less. Large blocks of the CPU are aligned to huge pages, whose page faults
// cost a fraction of those of small pages.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/text.h"
#include "lmx/error.h"
#include "tensor/caching_allocator.h"

namespace lmx {

Allocator::~Allocator() = default;

void Allocator::zero(void* block, size_t bytes) const {
  std::memset(block, 0, bytes);
}
void Allocator::copy(void* to, const void* from, size_t bytes) const {
  std::memmove(to, from, bytes);
}

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
constexpr size_t kLarge = size_t{64} << 10;         // bytes of a tensor that an error message may name
constexpr int kMostNamed = 5;                       // sizes of tensors in an error message
constexpr int64_t kLeastSpare = int64_t{64} << 20;  // bytes that may be cached beyond the maximum ever in use

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
  void zero(void* block, size_t bytes) const override { pool_->zero(block, bytes); }
  void copy(void* to, const void* from, size_t bytes) const override { pool_->copy(to, from, bytes); }
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
  const std::shared_ptr<Allocator>& pool() const { return pool_; }

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
  const auto counting = std::dynamic_pointer_cast<CountingAllocator>(pool);
  return std::make_shared<CountingAllocator>(counting ? counting->pool() : std::move(pool));
}

void* CachingAllocator::allocate(size_t bytes, MemClass c) {
  requested();
  const size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  if (cap_ > 0 && counter_.stats.total + static_cast<int64_t>(bytes) > cap_) fail(size, c);
  void* block = reuse(size);
  if (!block) {
    const int64_t spare = std::max(kLeastSpare, most_in_use_ / 2);
    shrink_cache(most_in_use_ + spare - (counter_.stats.reserved - cached_) - static_cast<int64_t>(size));
    block = take_or_fail(size, c);
  }
  counter_.add(bytes, c);
  if (bytes >= kLarge) ++large_[{bytes, c}];
  most_in_use_ = std::max(most_in_use_, counter_.stats.total);
  return block;
}

void* CachingAllocator::reuse(size_t size) {
  const auto found = cache_.lower_bound(size);
  if (found == cache_.end() || found->first > size + size / 2) return nullptr;
  const size_t whole = found->first;
  void* block = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) cache_.erase(found);
  cached_ -= static_cast<int64_t>(whole);
  if (whole != size) larger_.emplace(block, whole);
  return block;
}

void* CachingAllocator::take_or_fail(size_t size, MemClass c) {
  void* block = take(size);
  if (!block) {
    shrink_cache(0);
    given_back();
    block = take(size);
  }
  if (!block) fail(size, c);
  counter_.stats.reserved += static_cast<int64_t>(size);
  return block;
}

void CachingAllocator::fail(size_t size, MemClass c) const {
  const MemoryStats& s = counter_.stats;
  std::string text = str("[memory] ", name_of(device()), " cannot allocate ", bytes_text(static_cast<int64_t>(size)),
                         " (", name_of(c), "): ", bytes_text(s.total), " are in use");
  for (size_t i = 0, named = 0; i < s.current.size(); ++i)
    if (s.current[i] > 0)
      text += str(named++ ? ", " : ": ", name_of(static_cast<MemClass>(i)), " ", bytes_text(s.current[i]));
  if (cap_ > 0 && s.total + static_cast<int64_t>(size) > cap_)
    text += str("; at most ", bytes_text(cap_), " may be in use here");
  else if (const std::string free = room(); !free.empty())
    text += "; " + free;
  int named = 0;
  for (auto it = large_.rbegin(); it != large_.rend() && named < kMostNamed; ++it, ++named)
    text += str(named ? ", " : ". The largest tensors: ", it->second, " of ",
                bytes_text(static_cast<int64_t>(it->first.first)), " (", name_of(it->first.second), ")");
  throw OutOfMemory(text +
                    ". A smaller batch.micro or batch.global reduces the activations, a smaller model everything else");
}

void CachingAllocator::release(void* block, size_t bytes, MemClass c) noexcept {
  const std::lock_guard lock(mutex_);
  counter_.remove(bytes, c);
  if (bytes >= kLarge) {
    const auto counted = large_.find({bytes, c});
    if (--counted->second == 0) large_.erase(counted);
  }
  const auto larger = larger_.find(block);
  const size_t size = larger == larger_.end() ? block_size(bytes) : larger->second;
  if (larger != larger_.end()) larger_.erase(larger);
  freed(block, size);
  cache_[size].push_back(block);
  cached_ += static_cast<int64_t>(size);
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
  shrink_cache(0);
}

void CachingAllocator::cap(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  cap_ = bytes;
}

MemoryCap::MemoryCap(const std::shared_ptr<Allocator>& allocator, int64_t bytes) {
  const auto counting = std::dynamic_pointer_cast<CountingAllocator>(allocator);
  pool_ = std::dynamic_pointer_cast<CachingAllocator>(counting ? counting->pool() : allocator);
  if (pool_) pool_->cap(bytes);
}

MemoryCap::~MemoryCap() {
  if (pool_) pool_->cap(0);
}

// Releases the largest blocks first, since these are the fewest.
void CachingAllocator::shrink_cache(int64_t most) {
  while (cached_ > most && !cache_.empty()) {
    const auto last = std::prev(cache_.end());
    const auto size = static_cast<int64_t>(last->first);
    give_back(last->second.back());
    last->second.pop_back();
    if (last->second.empty()) cache_.erase(last);
    cached_ -= size;
    counter_.stats.reserved -= size;
  }
}

}  // namespace lmx
