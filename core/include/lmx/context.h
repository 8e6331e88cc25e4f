// The state that a rank works with. There are no globals, so that many ranks can share one process.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lmx/dtype.h"
#include "lmx/random.h"
#include "lmx/tensor.h"
#include "lmx/trace.h"

namespace lmx {

class Tape;
class Communicator;

// An array that kernels of a device can read. On the CPU it is the host's own memory.
template <class T>
class Uploaded {
 public:
  Uploaded() = default;
  Uploaded(std::shared_ptr<const void> owner, const void* data, size_t size)
      : owner_(std::move(owner)), data_(static_cast<const T*>(data)), size_(size) {}
  const T* data() const { return data_; }
  int64_t size() const { return static_cast<int64_t>(size_); }

 private:
  std::shared_ptr<const void> owner_;
  const T* data_ = nullptr;
  size_t size_ = 0;
};

// A point in the work of a device.
class LMX_API Fence {
 public:
  virtual ~Fence();
  virtual void wait() = 0;  // until the work before this point is done
};

// The values of a tensor on their way to the host. The copy may still be running until get() is called.
template <class T>
class Reading {
 public:
  Reading() = default;
  // `copied`: the end of the copy into `host`; null if it is complete.
  explicit Reading(Tensor host, std::shared_ptr<Fence> copied = nullptr)
      : host_(std::move(host)), copied_(std::move(copied)) {}
  // Waits for the copy. The values live as long as the reading.
  std::span<const T> get() const& {
    if (copied_) copied_->wait();
    return host_.template values<T>();
  }
  std::span<const T> get() const&& = delete;
  T value() const { return get().front(); }  // of a tensor of one element

 private:
  Tensor host_;
  std::shared_ptr<Fence> copied_;
};

// How a CUDA device multiplies matrices of f32 (`products` of a recipe). exact: in f32. tf32: on tensor cores, which
// round the operands to TF32, a mantissa of 10 bits. bf16x3: on tensor cores, where each operand is the sum of two
// numbers in bf16, hi + lo, and the product is hi hi + hi lo + lo hi, summed in f32.
enum class F32Products : uint8_t { exact, tf32, bf16x3 };

struct Context {
  int rank = 0, ranks = 1;
  // The threads of this rank; 0: num_threads(). A rank that computes for all ranks may use more (Communicator::once()).
  int threads = 0;
  Device device;                                            // where ops compute
  void* stream = nullptr;                                   // queue of a CUDA device's work, a cudaStream_t
  std::shared_ptr<Allocator> allocator = Allocator::cpu();  // memory of `device`
  std::shared_ptr<Allocator> host = Allocator::cpu();       // memory of the host: batches, ids, plans
  RandomKey key;                                            // of the run; during a step, the key of that step
  Communicator* comm = nullptr;
  Tape* tape = nullptr;        // null: nothing is recorded (evaluation)
  DType compute = DType::f32;  // type to which inputs of matrix products are rounded: f64 (checks), f32, bf16, f16
  F32Products products = F32Products::exact;  // no effect on the CPU
  bool training = true;                       // dropout and other noise are active
  Tracer* tracer = nullptr;

  Tensor empty(Shape shape, DType type = DType::f32, MemClass c = MemClass::activations) const {
    return Tensor::empty(allocator, shape, type, c);
  }
  Tensor zeros(Shape shape, DType type = DType::f32, MemClass c = MemClass::activations) const {
    return Tensor::zeros(allocator, shape, type, c);
  }

  // `host` in the memory of `device`; on the CPU the same tensor.
  LMX_API Tensor upload(const Tensor& host_tensor) const;
  // The values for kernels of `device`. They live as long as a copy of the result.
  template <class T>
  Uploaded<T> upload(std::vector<T> values) const {
    const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
    if (device.kind == Device::Kind::cpu) return {owner, owner->data(), owner->size()};
    const auto copy = upload_bytes(std::as_bytes(std::span(*owner)));
    return {copy, copy.get(), owner->size()};
  }
  // Starts to copy the elements of `t` to the host. On the CPU nothing is copied.
  template <class T>
  Reading<T> read(const Tensor& t) const {
    if (t.device().kind == Device::Kind::cpu) return Reading<T>(t);
    auto [values, copied] = download(t);
    return Reading<T>(std::move(values), std::move(copied));
  }

 private:
  LMX_API std::shared_ptr<const void> upload_bytes(std::span<const std::byte> bytes) const;
  LMX_API std::pair<Tensor, std::shared_ptr<Fence>> download(const Tensor& t) const;
};

}  // namespace lmx
