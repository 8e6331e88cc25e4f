// Devices, the caching allocator, which counts bytes by their purpose, and Tensor: a dense row-major array, or a view
// of some rows of its leading dimension.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmx/api.h"
#include "lmx/dtype.h"

namespace lmx {

struct Device {
  enum class Kind : uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;  // which code path computes
  int index = 0;
  bool counts = false;  // tensors have addresses and sizes, but no values: kernels are counted and do not run
  bool operator==(const Device&) const = default;
};
inline constexpr size_t kDeviceKinds = 2;
LMX_API std::string name_of(Device device);  // "cpu", "cuda:0", "counted cuda:0"

// The purpose of a block of memory; every report of bytes is split by it.
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
  // Counts blocks of `pool`, or of the pool of `pool` if that one counts too: one for each rank of a process.
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

// Up to six dimension sizes; printed as (2, 3).
class LMX_API Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims_[static_cast<size_t>(i)]; }
  int64_t numel() const;
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  bool operator==(const Shape& o) const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};
LMX_API std::ostream& operator<<(std::ostream& out, const Shape& shape);

// A value type: copies share storage. Not thread-safe for writes. A default-constructed Tensor is undefined.
class LMX_API Tensor {
 public:
  Tensor() = default;
  // Uninitialised memory. The storage keeps `allocator` alive.
  static Tensor empty(const std::shared_ptr<Allocator>& allocator, Shape shape, DType type,
                      MemClass c = MemClass::activations);
  static Tensor zeros(const std::shared_ptr<Allocator>& allocator, Shape shape, DType type,
                      MemClass c = MemClass::activations);
  // Copies values of the host. REQUIRES: an allocator of the host (see Context::host and Context::upload()).
  template <class T>
  static Tensor from(const std::shared_ptr<Allocator>& allocator, Shape shape, std::span<const T> values,
                     MemClass c = MemClass::activations);

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_[i < 0 ? i + shape_.rank() : i]; }
  int64_t numel() const { return numel_; }
  int64_t bytes() const { return numel_ * static_cast<int64_t>(size_of(dtype_)); }
  DType dtype() const { return dtype_; }
  Device device() const;
  MemClass mem_class() const;
  const std::shared_ptr<Allocator>& allocator() const;

  void* raw() { return static_cast<std::byte*>(base_); }
  const void* raw() const { return base_; }
  // A pointer for kernels of device(). REQUIRES: T is the element type (InternalError otherwise).
  template <class T>
  T* data() {
    expect(dtype_of<T>);
    return static_cast<T*>(base_);
  }
  template <class T>
  const T* data() const {
    expect(dtype_of<T>);
    return static_cast<const T*>(base_);
  }
  // All elements, for code of the host. InternalError if the tensor is in a device's memory.
  template <class T>
  std::span<T> values() {
    expect_host();
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  template <class T>
  std::span<const T> values() const {
    expect_host();
    return {data<T>(), static_cast<size_t>(numel_)};
  }

  Tensor slice(int64_t begin, int64_t end) const;  // rows [begin, end) of the leading dimension; shares storage
  Tensor reshape(Shape shape) const;               // same elements, shares storage; one size may be -1
  Tensor clone(MemClass c) const;
  Tensor clone() const;
  Tensor to(DType type) const;    // host conversion between floating types; the tensor itself if equal
  Tensor like(MemClass c) const;  // uninitialised, same shape, type and device
  void zero();
  void copy_from(const Tensor& source);  // same shape, type and device
  // The same elements, also counted in `allocator` while the returned tensor or a view of it lives: for a rank that
  // uses memory that it shares with others. The result must not be written to.
  Tensor lent(const std::shared_ptr<Allocator>& allocator, MemClass c) const;

 private:
  struct Storage;
  void expect(DType type) const;
  void expect_host() const;
  std::shared_ptr<Storage> storage_;
  void* base_ = nullptr;
  Shape shape_;
  int64_t numel_ = 0;
  DType dtype_ = DType::f32;
};

// `(2, 3) f32`, for error texts.
LMX_API std::string describe(const Tensor& t);

}  // namespace lmx
