// Checks CUDA's C calls. An error contains the expression, its place and CUDA's message.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "lmx/error.h"

namespace lmx {

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
