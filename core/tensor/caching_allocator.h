// What every device's allocator does: size classes, reuse of freed blocks, counting by class.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "lmx/memory.h"

namespace lmx {

// A device adds where blocks come from. Its destructor calls trim(): the base's can no longer reach the device.
class LMX_API CachingAllocator : public Allocator {
 public:
  void* allocate(size_t bytes, MemClass c) final;
  void release(void* block, size_t bytes, MemClass c) noexcept final;
  MemoryStats stats() const final;
  void reset_peak() final;
  void trim() final;

 protected:
  virtual void* take(size_t size) = 0;  // null when the device has no more
  virtual void give_back(void* block) = 0;

 private:
  void* take_or_fail(size_t size);
  void trim_locked();

  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> cache_;
  MemoryStats stats_;
};

}  // namespace lmx
