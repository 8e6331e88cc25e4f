// The one exported symbol of liblmx_cuda.so, and device memory.
#include "backend/cuda.h"
#include "backend/cuda/cuda_check.h"
#include "tensor/caching_allocator.h"

namespace lmx {
namespace {

// All work runs on the default stream. So if a freed block is allocated again, new work cannot write to it before the
// work that used it has ended.
class CudaAllocator final : public CachingAllocator {
 public:
  explicit CudaAllocator(int index) : index_(index) {}
  ~CudaAllocator() override { trim(); }
  Device device() const override { return {Device::Kind::cuda, index_}; }
  void zero(void* block, size_t bytes) const override { LMX_CUDA_CHECK(cudaMemset(block, 0, bytes)); }
  void copy(void* to, const void* from, size_t bytes) const override {
    LMX_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
  }

 protected:
  void* take(size_t size) override {
    LMX_CUDA_CHECK(cudaSetDevice(index_));
    void* block = nullptr;
    const cudaError_t code = cudaMalloc(&block, size);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // the caller reports the error if no cached blocks are left to release
      return nullptr;
    }
    LMX_CUDA_CHECK(code);
    return block;
  }
  void give_back(void* block) override { (void)cudaFree(block); }

 private:
  int index_;
};

std::shared_ptr<Allocator> make_allocator(int index) {
  return std::make_shared<CudaAllocator>(index);
}

void copy(void* to, const void* from, size_t bytes) {
  LMX_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}

CudaApi make_api() {
  CudaApi api{sizeof(CudaApi), 0, "", LMX_CUDA_SUFFIX, make_allocator, copy};
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

extern "C" [[gnu::visibility("default")]] const lmx::CudaApi* lmx_cuda_api() {
  static const lmx::CudaApi api = lmx::make_api();
  return &api;
}
