// Devices and the caching allocator, which counts bytes by their purpose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lmx/api.h"

namespace lmx {

struct Device {
  enum class Kind : uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
inline constexpr size_t kDeviceKinds = 2;
LMX_API std::string name_of(Device device);  // "cpu", "cuda:0"

// The purpose of a block of memory; every report of bytes is split by it (FACTS A6).
enum class MemClass : uint8_t { parameters, gradients, optimizer, activations, communication, other };
inline constexpr int kMemClasses = 6;
LMX_API const char* name_of(MemClass c);

struct MemoryStats {
  std::array<int64_t, kMemClasses> current{};  // bytes in use, as requested
  std::array<int64_t, kMemClasses> peak{};     // each class's own maximum
  int64_t total = 0, total_peak = 0;           // bytes in use over all classes, and the maximum of that sum
  int64_t reserved = 0;                        // bytes taken from the system: whole blocks, including cached ones
};

// One per rank and device; thread-safe. Blocks are 64-byte aligned; freed blocks are kept by size class and reused.
class LMX_API Allocator {
 public:
  static std::shared_ptr<Allocator> cpu();
  // Takes its blocks from `pool` and counts them separately: one for each of several ranks that share a process.
  static std::shared_ptr<Allocator> counting(std::shared_ptr<Allocator> pool);
  virtual ~Allocator();
  virtual Device device() const = 0;
  // Never null. If the system has no more memory: RunError with the requested size and the bytes in use.
  virtual void* allocate(size_t bytes, MemClass c) = 0;
  virtual void release(void* block, size_t bytes, MemClass c) noexcept = 0;
  // Sets bytes to 0, and copies bytes between two places that may overlap, in the memory of device(). The defaults are
  // for the memory of the host.
  virtual void zero(void* block, size_t bytes) const;
  virtual void copy(void* to, const void* from, size_t bytes) const;
  // Counts memory that another allocator owns and this rank keeps in use; discharge() ends that.
  virtual void charge(size_t bytes, MemClass c) = 0;
  virtual void discharge(size_t bytes, MemClass c) noexcept = 0;
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  virtual void trim() = 0;  // returns cached blocks to the system
};

}  // namespace lmx
