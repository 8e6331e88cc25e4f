// The emulated device's contents of cuDNN's opaque types.
#pragma once

#include <array>
#include <vector>

#include "include/cudnn.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> sizes, strides;
};
struct cudnnDropoutStruct {
  float dropout = -1;  // not set
};
struct cudnnRNNDataStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int steps = 0, batch = 0, width = 0;  // 0: not set
};
struct cudnnRNNStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t input = 0, cells = 0, output = 0;  // 0: not set
};
