// liblmx_cuda.so's one exported symbol, and device memory.
#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/cuda_check.h"
#include "cuda/cuda_kernels.h"
#include "lmx/cuda.h"

namespace lmx {
namespace {

// Keeps freed blocks by size. All work runs on the default stream, so a block that is given out again cannot be written
// before the work that used it has ended.
class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(int index) : index_(index) {}
  ~CudaAllocator() override { CudaAllocator::trim(); }

  Device device() const override { return {Device::Kind::cuda, index_}; }

  void* allocate(size_t bytes, MemClass c) override {
    const size_t size = rounded(bytes);
    const std::lock_guard lock(mutex_);
    void* block = nullptr;
    if (std::vector<void*>& cached = cache_[size]; !cached.empty()) {
      block = cached.back();
      cached.pop_back();
    } else {
      block = take(size);
    }
    const auto i = static_cast<size_t>(c);
    stats_.current[i] += static_cast<int64_t>(size);
    stats_.total += static_cast<int64_t>(size);
    stats_.peak[i] = std::max(stats_.peak[i], stats_.current[i]);
    stats_.total_peak = std::max(stats_.total_peak, stats_.total);
    return block;
  }

  void release(void* block, size_t bytes, MemClass c) noexcept override {
    const size_t size = rounded(bytes);
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
  static size_t rounded(size_t bytes) { return std::max<size_t>(512, (bytes + 511) / 512 * 512); }

  void* take(size_t size) {
    LMX_CUDA_CHECK(cudaSetDevice(index_));
    void* block = nullptr;
    if (cudaMalloc(&block, size) != cudaSuccess) {
      (void)cudaGetLastError();
      trim_locked();
      if (cudaMalloc(&block, size) != cudaSuccess) {
        throw RunError(str("[memory] cuda:", index_, " cannot allocate ", size, " bytes: ", stats_.total, " are in use"));
      }
    }
    stats_.reserved += static_cast<int64_t>(size);
    return block;
  }

  void trim_locked() {
    for (auto& [size, blocks] : cache_) {
      for (void* block : blocks) (void)cudaFree(block);
      stats_.reserved -= static_cast<int64_t>(size * blocks.size());
      blocks.clear();
    }
  }

  int index_;
  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> cache_;
  MemoryStats stats_;
};

std::shared_ptr<Allocator> make_allocator(int index) { return std::make_shared<CudaAllocator>(index); }

void copy(void* to, const void* from, size_t bytes) {
  LMX_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}

CudaApi make_api() {
  CudaApi api{sizeof(CudaApi), 0, "", make_allocator, copy, add_cuda_gemm};
  const cudaError_t code = cudaGetDeviceCount(&api.devices);
  if (code != cudaSuccess) {
    api.devices = 0;
    api.reason = cudaGetErrorString(code);
    (void)cudaGetLastError();
  } else if (api.devices == 0) {
    api.reason = "no device is visible";
  }
  return api;
}

}  // namespace
}  // namespace lmx

extern "C" LMX_API const lmx::CudaApi* lmx_cuda_api() {
  static const lmx::CudaApi api = lmx::make_api();
  return &api;
}
