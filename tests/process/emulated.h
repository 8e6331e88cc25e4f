// The libraries of the emulated CUDA device and NCCL, for LMX_CUDA_LIBRARY and LMX_NCCL_LIBRARY. A build without the
// emulator has neither file.
#pragma once

#include "paths.h"

namespace lmx_test {

inline std::string emulated_cuda() {
  return build_path("/lib/liblmx_cuda_emulated.so");
}
inline std::string emulated_nccl() {
  return build_path("/lib/libnccl_emulated.so");
}

}  // namespace lmx_test
