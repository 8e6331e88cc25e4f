// The one exported symbol of liblmx_cuda.so.
#include "backend/cuda/device.h"

namespace lmx {
namespace {

// Why CUDA reports no device.
std::string reason_of(cudaError_t code) {
  if (code != cudaErrorInsufficientDriver) return cudaGetErrorString(code);
  int driver = 0, runtime = 0;
  LMX_CUDA_CHECK(cudaDriverGetVersion(&driver));
  LMX_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  return str("the driver of this machine supports CUDA up to ", cuda_version_text(driver), ", and this lmx uses CUDA ",
             cuda_version_text(runtime), "; install a newer driver");
}

CudaApi make_api() {
  CudaApi api{sizeof(CudaApi), 0, "", LMX_CUDA_SUFFIX, cuda::device, cuda::device_info};
  const cudaError_t code = cudaGetDeviceCount(&api.devices);
  if (code != cudaSuccess) {
    api.devices = 0;
    static const std::string reason = reason_of(code);
    api.reason = reason.c_str();
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
