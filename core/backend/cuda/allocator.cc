#include <cstdlib>

#include "backend/cuda/device.h"
#include "backend/loop_work.h"
#include "base/text.h"
#include "lmx/log.h"
#include "tensor/caching_allocator.h"

namespace lmx::cuda {
namespace {

// LMX_CUDA_POISON=1 fills blocks that are freed with bytes 0xFF, which is NaN in every floating-point type, so that a
// kernel that reads freed or new memory gives wrong results in every run. For tests.
bool poisons() {
  static const bool poison = [] {
    const char* given = std::getenv("LMX_CUDA_POISON");
    return given && *given && *given != '0';
  }();
  return poison;
}

// Blocks come from the device's pool, which gives and takes memory in the order of the stream. cudaMalloc and cudaFree
// would wait for the whole device.
class CudaMemory final : public CachingAllocator {
 public:
  CudaMemory(int index, cudaStream_t stream, CudaDevice& counter) : index_(index), stream_(stream), counter_(counter) {
    cudaMemPool_t pool = nullptr;
    LMX_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, index));
    uint64_t kept = UINT64_MAX;  // bytes that the pool does not return to the system by itself
    LMX_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  }
  ~CudaMemory() override { trim(); }
  Device device() const override { return {Device::Kind::cuda, index_}; }
  void zero(void* block, size_t bytes) const override {
    if (described({block, nullptr, bytes})) return;
    LMX_CUDA_CHECK(cudaMemsetAsync(block, 0, bytes, stream()));
    counter_.count_moved(&DeviceCounts::fills, static_cast<int64_t>(bytes));
  }
  void copy(void* to, const void* from, size_t bytes) const override {
    if (described({to, from, bytes})) return;
    LMX_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()));
    counter_.count_moved(&DeviceCounts::copies, static_cast<int64_t>(bytes));
  }

 protected:
  void* take(size_t size) override {
    void* block = nullptr;
    const cudaError_t code = cudaMallocAsync(&block, size, stream_);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // the caller reports the error if no cached blocks are left to release
      return nullptr;
    }
    LMX_CUDA_CHECK(code);
    return block;
  }
  void give_back(void* block) override { (void)cudaFreeAsync(block, stream_); }
  std::string room() const override {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
    return str("the device has ", bytes_text(static_cast<int64_t>(total)), ", of which ",
               bytes_text(static_cast<int64_t>(free)), " are free");
  }
  void requested() const override {
    LMX_CHECK(!loop_work(), "a loop that may be replayed allocates memory of the device");
  }
  void freed(void* block, size_t size) noexcept override {
    if (poisons()) (void)cudaMemsetAsync(block, 0xFF, size, stream_);
  }

 private:
  struct Moved {
    void* to;
    const void* from;
    size_t bytes;
  };
  // Whether this thread describes its work in place of enqueuing it.
  static bool described(const Moved& moved) {
    LoopWork* work = loop_work();
    if (!work || !work->text) return false;
    work->describe(&moved, sizeof moved);
    return true;
  }
  cudaStream_t stream() const {
    const LoopWork* work = loop_work();
    return work ? static_cast<cudaStream_t>(work->stream) : stream_;
  }

  int index_;
  cudaStream_t stream_;
  CudaDevice& counter_;
};

class PinnedMemory final : public CachingAllocator {
 public:
  ~PinnedMemory() override { trim(); }
  Device device() const override { return {}; }

 protected:
  void* take(size_t size) override {
    void* block = nullptr;
    const cudaError_t code = cudaHostAlloc(&block, size, cudaHostAllocDefault);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    LMX_CUDA_CHECK(code);
    return block;
  }
  void give_back(void* block) override { (void)cudaFreeHost(block); }
};

}  // namespace

std::shared_ptr<Allocator> make_memory(int index, cudaStream_t stream, CudaDevice& counter) {
  return std::make_shared<CudaMemory>(index, stream, counter);
}

std::shared_ptr<Allocator> make_pinned() {
  return std::make_shared<PinnedMemory>();
}

}  // namespace lmx::cuda
