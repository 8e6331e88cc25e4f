#include <cstdlib>

#include "backend/cuda/device.h"
#include "backend/loop_work.h"
#include "base/text.h"
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

// Free bytes that the driver's pool does not return to the system, where other processes could use them. The cache of
// blocks is above the pool, so the pool needs few.
constexpr uint64_t kKept = uint64_t{256} << 20;

// Blocks come from the device's pool, which gives and takes memory in the order of a stream. cudaMalloc and cudaFree
// would wait for the whole device.
class CudaMemory final : public CachingAllocator {
 public:
  CudaMemory(int index, const Streams& streams, CudaDevice& counter)
      : index_(index), streams_(streams), counter_(counter) {
    LMX_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool_, index));
    uint64_t kept = kKept;
    LMX_CUDA_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept));
  }
  ~CudaMemory() override { trim(); }
  Device device() const override { return {Device::Kind::cuda, index_}; }
  void zero(void* block, size_t bytes) const override {
    if (described({block, nullptr, bytes})) return;
    counter_.select();
    LMX_CUDA_CHECK(cudaMemsetAsync(block, 0, bytes, stream()));
    counter_.count_moved(&DeviceCounts::fills, static_cast<int64_t>(bytes));
  }
  void copy(void* to, const void* from, size_t bytes) const override {
    if (described({to, from, bytes})) return;
    counter_.select();
    LMX_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()));
    counter_.count_moved(&DeviceCounts::copies, static_cast<int64_t>(bytes));
  }

 protected:
  void* take(size_t size) override {
    counter_.select();
    void* block = nullptr;
    const cudaError_t code = cudaMallocAsync(&block, size, streams_[queue()]);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // the caller reports the error if no cached blocks are left to release
      return nullptr;
    }
    LMX_CUDA_CHECK(code);
    return block;
  }
  size_t queue() const override { return static_cast<size_t>(work_stream()); }
  void give_back(void* block, size_t queue) override { (void)cudaFreeAsync(block, streams_[queue]); }
  void finish_work() override {
    counter_.select();
    for (const cudaStream_t stream : streams_) LMX_CUDA_CHECK(cudaStreamSynchronize(stream));
  }
  // A block of cudaFreeAsync is free after the work that was enqueued before, and only then joined with others.
  void given_back() override {
    finish_work();
    LMX_CUDA_CHECK(cudaMemPoolTrimTo(pool_, 0));
  }
  std::string room() const override {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
    const int64_t graphs = counter_.graph_memory().bytes;
    return str("the device has ", bytes_text(static_cast<int64_t>(total)), ", of which ",
               graphs > 0 ? str("CUDA graphs take ", bytes_text(graphs), " and ") : std::string(),
               bytes_text(static_cast<int64_t>(free)), " are free");
  }
  bool lowest_first() const override { return true; }  // CUDA graphs are replayed with the addresses that they had
  void requested(size_t, MemClass) const override {
    LMX_CHECK(!loop_work(), "a loop that may be replayed allocates memory of the device");
  }
  void freed(void* block, size_t size, size_t queue) noexcept override {
    if (poisons()) (void)cudaMemsetAsync(block, 0xFF, size, streams_[queue]);
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
    return work ? static_cast<cudaStream_t>(work->stream) : streams_[queue()];
  }

  int index_;
  Streams streams_;
  CudaDevice& counter_;
  cudaMemPool_t pool_ = nullptr;
};

class PinnedMemory final : public CachingAllocator {
 public:
  explicit PinnedMemory(CudaDevice& owner) : owner_(owner) {}
  ~PinnedMemory() override { trim(); }
  Device device() const override { return {}; }

 protected:
  void* take(size_t size) override {
    owner_.select();
    void* block = nullptr;
    const cudaError_t code = cudaHostAlloc(&block, size, cudaHostAllocDefault);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    LMX_CUDA_CHECK(code);
    return block;
  }
  void give_back(void* block, size_t) override { (void)cudaFreeHost(block); }

 private:
  CudaDevice& owner_;
};

}  // namespace

std::shared_ptr<CachingAllocator> make_memory(int index, const Streams& streams, CudaDevice& counter) {
  return std::make_shared<CudaMemory>(index, streams, counter);
}

std::shared_ptr<Allocator> make_pinned(CudaDevice& device) {
  return std::make_shared<PinnedMemory>(device);
}

}  // namespace lmx::cuda
