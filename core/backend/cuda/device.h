// A CUDA device: its stream, memory, page-locked memory and copies.
#pragma once

#include "backend/cuda.h"
#include "backend/cuda/cuda_check.h"

namespace lmx::cuda {

// Made at the first call, and never destroyed: the CUDA runtime may end before objects of static storage do.
CudaDevice& device(int index);

CudaDeviceInfo device_info(int index);
// Whether this library contains kernels for the architecture of the thread's current device.
bool has_kernels();

// `counter` counts copies and fills. It must live longer than the allocator.
std::shared_ptr<Allocator> make_memory(int index, cudaStream_t stream, CudaDevice& counter);
std::shared_ptr<Allocator> make_pinned(CudaDevice& device);

// The stream of a context of a device.
inline cudaStream_t stream_of(const Context& ctx) {
  return static_cast<cudaStream_t>(ctx.stream);
}

}  // namespace lmx::cuda
