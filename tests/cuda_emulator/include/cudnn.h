// The part of cuDNN's C API that lmx uses, for the emulator, with the names and values of cuDNN 9. drift_test.cc
// compares them with NVIDIA's header, if that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"

extern "C" {

typedef enum {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
} cudnnStatus_t;

typedef struct cudnnContext* cudnnHandle_t;

size_t cudnnGetVersion(void);
const char* cudnnGetErrorString(cudnnStatus_t status);
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);

}  // extern "C"
