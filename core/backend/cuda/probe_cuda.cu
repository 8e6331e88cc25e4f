// Whether this library contains kernels for the architecture of the current device.
#include <cuda_runtime.h>

#include "backend/cuda/device.h"

namespace lmx::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

bool has_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t code = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction) {
    (void)cudaGetLastError();
    return false;
  }
  LMX_CUDA_CHECK(code);
  return true;
}

}  // namespace lmx::cuda
