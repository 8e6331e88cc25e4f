#include <cublasLt.h>
#include <cuda_runtime_api.h>
#if LMX_CUDNN_HEADERS
#include <cudnn.h>
#endif

#include "drift_table.h"

#if CUDART_VERSION / 1000 != 13
#error "the emulator declares CUDA 13"
#endif

namespace cuda_drift {

Table nvidia() {
  return table();
}

}  // namespace cuda_drift
