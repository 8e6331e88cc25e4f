// The one exported symbol of liblmx_cuda.so.
#include "backend/cuda/device.h"

namespace lmx {
namespace {

CudaApi make_api() {
  CudaApi api{sizeof(CudaApi), 0, "", LMX_CUDA_SUFFIX, cuda::device};
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
