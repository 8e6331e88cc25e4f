// A CUDA device: its streams, memory, page-locked memory and copies. And checks of CUDA's C calls.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>

#include "backend/cuda.h"
#include "lmx/error.h"
#include "tensor/caching_allocator.h"

namespace lmx {

// An error of LMX_CUDA_CHECK() contains the expression, its place and CUDA's message.

// RunError. Some errors end all work of the device for this process, and every later call returns them as well; their
// message says so.
[[noreturn]] void cuda_failed(cudaError_t code, const char* expression, const char* file, int line);

inline void cuda_check(cudaError_t code, const char* expression, const char* file, int line) {
  if (code != cudaSuccess) cuda_failed(code, expression, file, line);
}
inline void cuda_check(cublasStatus_t code, const char* expression, const char* file, int line) {
  if (code == CUBLAS_STATUS_SUCCESS) return;
  throw RunError(str("[cuda] ", expression, " failed at ", file, ":", line, ": ", cublasLtGetStatusName(code)));
}

}  // namespace lmx

#define LMX_CUDA_CHECK(expression) ::lmx::cuda_check((expression), #expression, __FILE__, __LINE__)

namespace lmx::cuda {

// Made at the first call, and never destroyed: the CUDA runtime may end before objects of static storage do.
CudaDevice& device(int index);

CudaDeviceInfo device_info(int index);
// Whether this library contains kernels for the architecture of the thread's current device.
bool has_kernels();

using Streams = std::array<cudaStream_t, kWorkStreams>;  // by WorkStream

// Its queues are the streams. `counter` counts copies and fills. It must live longer than the allocator.
std::shared_ptr<CachingAllocator> make_memory(int index, const Streams& streams, CudaDevice& counter);
std::shared_ptr<Allocator> make_pinned(CudaDevice& device);

// The stream of a context of a device.
inline cudaStream_t stream_of(const Context& ctx) {
  return static_cast<cudaStream_t>(ctx.stream);
}

}  // namespace lmx::cuda
