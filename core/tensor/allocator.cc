// Blocks are requested from the system in size classes (an eighth apart), so that a freed block fits the next request
// of about its size, or of up to a third less. Large blocks of the CPU are aligned to huge pages, whose page faults
// cost a fraction of those of small pages.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>
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
  const std::string name = device.kind == Device::Kind::cpu ? "cpu" : str("cuda:", device.index);
  return device.counts ? "counted " + name : name;
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
  void give_back(void* block, size_t) override { std::free(block); }
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
  requested(bytes, c);
  const size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  if (cap_ > 0 && counter_.stats.total + static_cast<int64_t>(bytes) > cap_) fail(size, c, true);
  const size_t own = queue();
  void* block = reuse(queues_[own], size);
  if (!block) {
    const int64_t spare = std::max(kLeastSpare, most_in_use_ / 2);
    shrink_cache(most_in_use_ + spare - (counter_.stats.reserved - cached_) - static_cast<int64_t>(size));
    block = take_or_fail(size, c);
  }
  if (own != 0) owners_.emplace(block, own);
  counter_.add(bytes, c);
  if (bytes >= kLarge) ++large_[{bytes, c}];
  most_in_use_ = std::max(most_in_use_, counter_.stats.total);
  return block;
}

void* CachingAllocator::reuse(Queue& own, size_t size) {
  const auto found = own.cache.lower_bound(size);
  if (found == own.cache.end() || found->first > size + size / 2) return nullptr;
  const size_t whole = found->first;
  if (lowest_first()) std::pop_heap(found->second.begin(), found->second.end(), std::greater<>());
  void* block = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) own.cache.erase(found);
  cached_ -= static_cast<int64_t>(whole);
  if (whole != size) larger_.emplace(block, whole);
  return block;
}

void* CachingAllocator::take_or_fail(size_t size, MemClass c) {
  void* block = take(size);
  if (!block) {
    free_held();
    shrink_cache(0);
    given_back();
    block = take(size);
  }
  if (!block) fail(size, c, false);
  counter_.stats.reserved += static_cast<int64_t>(size);
  return block;
}

void CachingAllocator::fail(size_t size, MemClass c, bool by_cap) const {
  const MemoryStats& s = counter_.stats;
  std::string text = str("[memory] ", name_of(device()), " cannot allocate ", bytes_text(static_cast<int64_t>(size)),
                         " (", name_of(c), "): ", bytes_text(s.total), " are in use");
  if (const std::string classes = class_text(s.current); !classes.empty()) text += ": " + classes;
  if (by_cap)
    text += str("; at most ", bytes_text(cap_), " may be in use here");
  else if (const std::string free = room(); !free.empty())
    text += "; " + free;
  int named = 0;
  for (auto it = large_.rbegin(); it != large_.rend() && named < kMostNamed; ++it, ++named)
    text += str(named ? ", " : ". The largest tensors: ", it->second, " of ",
                bytes_text(static_cast<int64_t>(it->first.first)), " (", name_of(it->first.second), ")");
  throw OutOfMemory(str(text, ". ", kMemoryRemedy));
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
  size_t owner = 0;
  if (const auto found = owners_.find(block); found != owners_.end()) {
    owner = found->second;
    owners_.erase(found);
  }
  ++frees_;
  const size_t by = last_user(block, size, owner);
  if (by == owner)
    keep(block, size, owner);
  else
    queues_[owner].held.push_back({block, size, by, frees_});
}

void CachingAllocator::keep(void* block, size_t size, size_t queue) noexcept {
  freed(block, size, queue);
  std::vector<void*>& blocks = queues_[queue].cache[size];
  blocks.push_back(block);
  if (lowest_first()) std::push_heap(blocks.begin(), blocks.end(), std::greater<>());
  cached_ += static_cast<int64_t>(size);
}

// The queue that may still use a block which the calling thread frees, other than the block's own if there is one.
size_t CachingAllocator::last_user(const void* block, size_t size, size_t owner) const {
  if (const size_t own = queue(); own != owner) return own;
  const void* end = static_cast<const std::byte*>(block) + size;
  for (auto it = shared_.lower_bound(block); it != shared_.end() && it->first < end; ++it)
    if (it->second != owner) return it->second;
  return owner;
}

uint64_t CachingAllocator::frees() const {
  const std::lock_guard lock(mutex_);
  return frees_;
}

void CachingAllocator::passed(size_t earlier, uint64_t frees, size_t later) {
  const std::lock_guard lock(mutex_);
  std::erase_if(queues_[later].held, [&](const Held& held) {
    const bool usable = held.by == earlier && held.number <= frees;
    if (usable) keep(held.block, held.size, later);
    return usable;
  });
}

void CachingAllocator::share(const void* address, size_t queue) {
  const std::lock_guard lock(mutex_);
  shared_.emplace(address, queue);
}

void CachingAllocator::unshare(const void* address, size_t queue) {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = shared_.equal_range(address);
  const auto found = std::find_if(first, last, [&](const auto& entry) { return entry.second == queue; });
  if (found != last) shared_.erase(found);
}

// Only for a device without free memory: the host waits for all work.
void CachingAllocator::free_held() {
  finish_work();
  for (size_t q = 0; q < kQueues; ++q)
    for (const Held& held : std::exchange(queues_[q].held, {})) keep(held.block, held.size, q);
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
  const auto largest = [](const Queue& queue) { return queue.cache.empty() ? 0 : queue.cache.rbegin()->first; };
  while (cached_ > most) {
    const auto from = std::max_element(queues_.begin(), queues_.end(),
                                       [&](const Queue& a, const Queue& b) { return largest(a) < largest(b); });
    if (from->cache.empty()) break;
    const auto last = std::prev(from->cache.end());
    const auto size = static_cast<int64_t>(last->first);
    give_back(last->second.back(), static_cast<size_t>(from - queues_.begin()));
    last->second.pop_back();
    if (last->second.empty()) from->cache.erase(last);
    cached_ -= size;
    counter_.stats.reserved -= size;
  }
}

std::string class_text(std::span<const NamedBytes> classes) {
  std::string text;
  for (const auto& [name, bytes] : classes)
    if (bytes > 0) text += str(text.empty() ? "" : ", ", name, " ", bytes_text(bytes));
  return text;
}

std::string class_text(const std::array<int64_t, kMemClasses>& bytes) {
  std::array<NamedBytes, kMemClasses> classes;
  for (size_t c = 0; c < classes.size(); ++c) classes[c] = {name_of(static_cast<MemClass>(c)), bytes[c]};
  return class_text(classes);
}

std::string peak_text(const MemoryStats& stats) {
  const std::string classes = class_text(stats.peak);
  return str(bytes_text(stats.total_peak), classes.empty() ? "" : ": ", classes);
}

}  // namespace lmx
