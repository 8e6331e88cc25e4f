// The one exported symbol of liblmx_cudnn.so.
#include "backend/cudnn/library.h"

#include <map>
#include <mutex>

#include "backend/cuda/device.h"

namespace lmx::cudnn {

void check(cudnnStatus_t status, const char* expression, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw RunError(str("[cudnn] ", expression, " failed at ", file, ":", line, ": ", cudnnGetErrorString(status)));
}

cudnnHandle_t handle_of(const Context& ctx) {
  static std::mutex& mutex = *new std::mutex;
  static std::map<int, cudnnHandle_t>& handles = *new std::map<int, cudnnHandle_t>;
  const std::lock_guard lock(mutex);
  cudnnHandle_t& handle = handles[ctx.device.index];
  cuda_device(ctx.device).select();
  if (!handle) LMX_CUDNN_CHECK(cudnnCreate(&handle));
  LMX_CUDNN_CHECK(cudnnSetStream(handle, cuda::stream_of(ctx)));
  return handle;
}

}  // namespace lmx::cudnn

extern "C" [[gnu::visibility("default")]] const lmx::CudnnApi* lmx_cudnn_api() {
  static const lmx::CudnnApi api{sizeof(lmx::CudnnApi), static_cast<int64_t>(cudnnGetVersion()),
                                 lmx::cudnn::sdpa_refusal};
  return &api;
}
