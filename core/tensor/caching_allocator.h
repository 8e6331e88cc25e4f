// The common part of every device's allocator: size classes, reuse of freed blocks, counting by class.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lmx/error.h"
#include "lmx/tensor.h"

namespace lmx {

// The size class of a request: at least 64 bytes, then eighths of powers of two, so that at most 12.5 % of a block is
// unused.
size_t block_size(size_t bytes);

// An allocator found no memory.
class OutOfMemory : public RunError {
 public:
  using RunError::RunError;
};

// Bytes by class and their peaks. Not thread-safe.
class MemoryCounter {
 public:
  void add(size_t size, MemClass c) {
    const auto i = static_cast<size_t>(c);
    stats.current[i] += static_cast<int64_t>(size);
    stats.total += static_cast<int64_t>(size);
    stats.peak[i] = std::max(stats.peak[i], stats.current[i]);
    stats.total_peak = std::max(stats.total_peak, stats.total);
  }
  void remove(size_t size, MemClass c) {
    stats.current[static_cast<size_t>(c)] -= static_cast<int64_t>(size);
    stats.total -= static_cast<int64_t>(size);
  }
  void reset_peak() {
    stats.peak = stats.current;
    stats.total_peak = stats.total;
  }
  MemoryStats stats;
};

// A freed block serves the next request of its class, or of a slightly smaller one. If shapes vary from step to step,
// as with sentences, every class would otherwise keep its own blocks forever, so the cached bytes beyond the maximum in
// use are bounded. A derived class for each device allocates the blocks. Its destructor must call trim(), since the
// destructor of the base class can no longer call the derived class.
//
// A device may run its work in several queues (the streams of CUDA). A block belongs to the queue in which it was
// allocated, and serves requests of that queue only. Work of the queue that frees a block may still use it. If that is
// another queue, the block is held back until its own queue waits for that work, which passed() states. So every queue
// gets the same blocks in every run, however fast the queues are.
class CachingAllocator : public Allocator {
 public:
  static constexpr size_t kQueues = 2;
  void* allocate(size_t bytes, MemClass c) final;
  void release(void* block, size_t bytes, MemClass c) noexcept final;
  void charge(size_t bytes, MemClass c) final;
  void discharge(size_t bytes, MemClass c) noexcept final;
  MemoryStats stats() const final;
  void reset_peak() final;
  void trim() final;
  // allocate() fails if more than `bytes` would be in use; 0: no cap.
  void cap(int64_t bytes);

  // The number of blocks that were freed so far.
  uint64_t frees() const;
  // Work that is enqueued in the queue `later` from now on runs after the work of `earlier` that was enqueued when
  // frees() returned `frees`.
  void passed(size_t earlier, uint64_t frees, size_t later);
  // The block that contains `address` is also used by work of `queue`, whichever thread frees it. unshare() ends that:
  // the block's own queue waits for that work.
  void share(const void* address, size_t queue);
  void unshare(const void* address, size_t queue);

 protected:
  virtual size_t queue() const { return 0; }  // of the calling thread's work
  virtual void* take(size_t size) = 0;        // for the calling thread's queue; null if the device has no memory left
  virtual void give_back(void* block, size_t queue) = 0;
  virtual void finish_work() {}  // waits for the work of all queues
  virtual void given_back() {}   // called when every cached block was given back, before the next take()
  virtual void requested(size_t, MemClass) const {}  // called before each allocation
  // Whether a request gets the free block with the lowest address, so that the same requests get the same addresses in
  // every step. Otherwise it gets the block that was freed last, which is still in the caches of a CPU.
  virtual bool lowest_first() const { return false; }
  // Called for each block that was freed, before work of its queue can use it again.
  virtual void freed(void*, size_t, size_t /*queue*/) noexcept {}
  // The memory of the device and how much of it is free, for an error message; "": unknown.
  virtual std::string room() const { return {}; }

 private:
  // A freed block that is held back until its queue waits for the work of the queue `by`.
  struct Held {
    void* block;
    size_t size, by;
    uint64_t number;  // of blocks that were freed, including this one
  };
  struct Queue {
    std::map<size_t, std::vector<void*>> cache;  // by size; no entry is empty
    std::vector<Held> held;                      // in the order in which they were freed
  };

  void* reuse(Queue& own, size_t size);  // null if no cached block fits
  void keep(void* block, size_t size, size_t queue) noexcept;
  size_t last_user(const void* block, size_t size, size_t owner) const;
  void free_held();
  void* take_or_fail(size_t size, MemClass c);
  [[noreturn]] void fail(size_t size, MemClass c, bool by_cap) const;
  void shrink_cache(int64_t most);

  mutable std::mutex mutex_;
  std::array<Queue, kQueues> queues_;
  std::unordered_map<void*, size_t> larger_;   // sizes of blocks in use that are larger than their request's class
  std::unordered_map<void*, size_t> owners_;   // queues of the blocks in use that do not belong to queue 0
  std::multimap<const void*, size_t> shared_;  // share(): addresses and queues
  uint64_t frees_ = 0;
  int64_t cached_ = 0;  // bytes
  int64_t most_in_use_ = 0;
  int64_t cap_ = 0;
  MemoryCounter counter_;
  std::map<std::pair<size_t, MemClass>, int64_t> large_;  // how many large tensors are in use, by bytes and class
};

// While it exists, an allocation throws OutOfMemory if more than `bytes` would be in use in the pool of `allocator`,
// which the ranks of a process share. 0: no cap. So a test of what fits fails as on a device, also on a CPU, whose
// kernel would end the process instead. Ranks that share a pool must give the same number and end at the same time.
class MemoryCap {
 public:
  MemoryCap(const std::shared_ptr<Allocator>& allocator, int64_t bytes);
  ~MemoryCap();
  MemoryCap(const MemoryCap&) = delete;
  MemoryCap& operator=(const MemoryCap&) = delete;

 private:
  std::shared_ptr<CachingAllocator> pool_;
};

// Memory by class as text, the same in errors, in the log of a run and in estimates.

using NamedBytes = std::pair<const char*, int64_t>;

// "parameters 1.0 GB, gradients 500 MB": the classes that have bytes, in the given order; "" if none has.
std::string class_text(std::span<const NamedBytes> classes);
// The same of an allocator's classes.
std::string class_text(const std::array<int64_t, kMemClasses>& bytes);
// "3.1 GB: parameters 1.0 GB, ...": the peak of all classes together, then that of each class.
std::string peak_text(const MemoryStats& stats);

// The advice of every message about a lack of memory.
inline constexpr const char* kMemoryRemedy =
    "A smaller batch (batch.micro or batch.global, --batch, --samples) reduces the activations, a smaller model "
    "everything else";

}  // namespace lmx
