// cuDNN's handles and descriptors on the emulated device.
#include "handle.h"

#include <algorithm>

namespace {

template <class T>
cudnnStatus_t create(T** to) {
  if (!to) return CUDNN_STATUS_BAD_PARAM;
  *to = new T;
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t destroy(T* object) {
  delete object;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion(void) {
  return 91900;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    default:
      return "CUDNN_STATUS_NOT_SUPPORTED";
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return create(handle);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return destroy(descriptor);
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, int rank,
                                         const int sizes[], const int strides[]) {
  if (!descriptor || rank < 3 || rank > 8) return CUDNN_STATUS_BAD_PARAM;  // cuDNN's smallest rank is 3 as well
  *descriptor = {type, {sizes, sizes + rank}, {strides, strides + rank}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t descriptor, int most, cudnnDataType_t* type,
                                         int* rank, int sizes[], int strides[]) {
  if (!descriptor) return CUDNN_STATUS_BAD_PARAM;
  *type = descriptor->type;
  *rank = static_cast<int>(descriptor->sizes.size());
  const int n = std::min(most, *rank);
  std::copy_n(descriptor->sizes.begin(), n, sizes);
  std::copy_n(descriptor->strides.begin(), n, strides);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t descriptor) {
  return destroy(descriptor);
}
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t descriptor, cudnnHandle_t handle, float dropout, void*,
                                        size_t, unsigned long long) {
  if (!descriptor || !handle || dropout != 0) return CUDNN_STATUS_BAD_PARAM;
  descriptor->dropout = dropout;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* rnn) {
  return create(rnn);
}
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn) {
  return destroy(rnn);
}
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor) {
  return destroy(descriptor);
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int steps, int batch, int width,
                                        const int lengths[], void*) {
  const bool known = descriptor && layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED && steps > 0 && batch > 0;
  if (!known || width <= 0) return CUDNN_STATUS_BAD_PARAM;
  // The reference computes sequences of one length.
  if (std::any_of(lengths, lengths + batch, [&](int n) { return n != steps; })) return CUDNN_STATUS_NOT_SUPPORTED;
  *descriptor = {type, steps, batch, width};
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
