// The interface between the core and liblmx_cudnn.so, the kernels that call NVIDIA's cuDNN. It is a separate library
// beside liblmx_cuda.so, because cuDNN maps several hundred megabytes and is optional: lmx has kernels for everything
// that cuDNN computes. It is opened at the first use.
#pragma once

#include <cstdint>
#include <string>

#include "backend/sdpa.h"

namespace lmx {

// The environment variable LMX_CUDNN.
enum class CudnnUse {
  never,       // 0
  if_present,  // auto, the default
  required,    // 1: it is an error if cuDNN cannot be used
};
CudnnUse cudnn_use();  // UserError: another value

// The table that the library exports as `lmx_cudnn_api`. Its kernels are added to the kernel table when it is opened.
struct CudnnApi {
  uint32_t size;
  int64_t version;  // of the cuDNN that was loaded, as cuDNN counts: 91900 is 9.19.0
  // Why the current device cannot compute SdpaForward and SdpaBackward of this shape; "" if it can. Does not depend on
  // earlier calls, so forward and backward, and every run on this kind of device, get the same answer.
  std::string (*sdpa_refusal)(const Context& ctx, const SdpaShape& shape);
};

// Opens the library. Null if it is missing or cannot be loaded; cudnn_unavailable() is the reason. Requires a CUDA
// device.
const CudnnApi* load_cudnn();
const std::string& cudnn_unavailable();
std::string cudnn_version_text(int64_t version);  // "9.19.0"

// UserError if LMX_CUDNN=1 and the library cannot be loaded. Requires a CUDA device.
void check_required_cudnn();

// Whether cuDNN computes attention of this shape on the device of ctx. If it cannot, the reason is logged once, or it
// is a UserError if LMX_CUDNN=1.
bool cudnn_computes(const Context& ctx, const SdpaShape& shape);

// The version of cuDNN that a run in `precision` may use, for its records; "" if it uses none.
std::string cudnn_version_of_run(Device device, const std::string& precision);

}  // namespace lmx
