#include "backend/cuda/cuda_check.h"

#include <algorithm>
#include <iterator>

namespace lmx {
namespace {

// After one of these the device does no more work for the process: CUDA's documentation calls the process inconsistent.
constexpr cudaError_t kFatal[] = {
    cudaErrorECCUncorrectable,   cudaErrorIllegalAddress,     cudaErrorLaunchTimeout,
    cudaErrorHardwareStackError, cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
    cudaErrorInvalidPc,          cudaErrorLaunchFailure,      cudaErrorUnknown,
};

}  // namespace

void cuda_failed(cudaError_t code, const char* expression, const char* file, int line) {
  const std::string error = str(cudaGetErrorName(code), ", ", cudaGetErrorString(code));
  if (std::find(std::begin(kFatal), std::end(kFatal), code) == std::end(kFatal))
    throw RunError(str("[cuda] ", expression, " failed at ", file, ":", line, ": ", error));
  throw RunError(str("[cuda] the device has failed and does no more work for this process: ", error,
                     "; --resume continues the run from its last checkpoint. If this happens again, look for 'Xid' in ",
                     "the kernel's log (dmesg), which names faults of the hardware"));
}

}  // namespace lmx
