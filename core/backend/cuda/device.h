// A CUDA device: its streams, memory, page-locked memory and copies.
#pragma once

#include <array>

#include "backend/cuda.h"
#include "backend/cuda/cuda_check.h"
#include "backend/work_stream.h"
#include "tensor/caching_allocator.h"

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
