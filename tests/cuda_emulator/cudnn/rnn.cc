// cuDNN's recurrent layers on the emulated device: a unidirectional LSTM layer with two biases.
#include "lmx/dtype.h"
#include "lstm_steps.h"

namespace {

using emulated_cudnn::Layout;
using emulated_cudnn::Lstm;

size_t size_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF ? 2 : 4;
}
Layout layout_of(const cudnnRNNStruct& rnn) {
  return {rnn.input, rnn.cells, rnn.output};
}
size_t weight_bytes_of(const cudnnRNNStruct& rnn) {
  return static_cast<size_t>(layout_of(rnn).size()) * size_of(rnn.type);
}
size_t reserve_bytes_of(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x) {
  return static_cast<size_t>(Lstm{layout_of(rnn), x.steps, x.batch, {}, {}, {}, {}, {}, {}, {}}.reserve_size()) *
         sizeof(double);
}
size_t work_bytes_of(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x) {
  return static_cast<size_t>(x.batch * rnn.cells) * sizeof(double);
}

// Whether descriptors of one call agree.
bool agree(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x, const cudnnRNNDataStruct& y) {
  return x.type == rnn.type && y.type == rnn.type && x.steps == y.steps && x.batch == y.batch && x.width == rnn.input &&
         y.width == rnn.output;
}
bool is_state(const cudnnTensorStruct& d, const cudnnRNNStruct& rnn, int batch, int64_t width) {
  return d.type == rnn.type && d.sizes == std::vector<int>{1, batch, static_cast<int>(width)};
}

cudnnStatus_t status_of(cudaError_t error) {
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

// Calls f(element type).
template <class F>
cudnnStatus_t with_type(const cudnnRNNStruct& rnn, F&& f) {
  return status_of(rnn.type == CUDNN_DATA_HALF ? f(lmx::float16{}) : f(float{}));
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t, cudnnRNNMode_t mode,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t, cudnnRNNInputMode_t,
                                       cudnnDataType_t type, cudnnDataType_t math_type, cudnnMathType_t math,
                                       int32_t input_size, int32_t hidden_size, int32_t projection_size, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  const bool known = rnn && mode == CUDNN_LSTM && bias == CUDNN_RNN_DOUBLE_BIAS && layers == 1 && dropout &&
                     dropout->dropout == 0 && flags == CUDNN_RNN_PADDED_IO_DISABLED && math_type == CUDNN_DATA_FLOAT;
  const bool fits = input_size > 0 && projection_size > 0 && projection_size <= hidden_size;
  if (!known || !fits) return CUDNN_STATUS_BAD_PARAM;
  if (type == CUDNN_DATA_FLOAT && math != CUDNN_FMA_MATH) return CUDNN_STATUS_NOT_SUPPORTED;  // not in TF32
  *rnn = {type, input_size, hidden_size, projection_size};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t,
                                        cudnnRNNDataDescriptor_t x, size_t* work, size_t* reserve) {
  if (!handle || !rnn || !rnn->cells || !x || !x->steps) return CUDNN_STATUS_BAD_PARAM;
  *work = work_bytes_of(*rnn, *x);
  *reserve = reserve_bytes_of(*rnn, *x);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  if (!handle || !rnn || !rnn->cells) return CUDNN_STATUS_BAD_PARAM;
  *bytes = weight_bytes_of(*rnn);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t layer, size_t bytes,
                                      const void* weights, int32_t id, cudnnTensorDescriptor_t matrix,
                                      void** matrix_address, cudnnTensorDescriptor_t bias, void** bias_address) {
  if (!handle || !rnn || layer != 0 || id < 0 || id > 8 || bytes != weight_bytes_of(*rnn))
    return CUDNN_STATUS_BAD_PARAM;
  const Layout layout = layout_of(*rnn);
  *matrix_address = *bias_address = nullptr;
  if (id == 8 && !layout.projects()) return CUDNN_STATUS_SUCCESS;
  char* const all = static_cast<char*>(const_cast<void*>(weights));
  const int rows = static_cast<int>(layout.rows(id)), columns = static_cast<int>(layout.columns(id));
  *matrix = {rnn->type, {1, rows, columns}, {rows * columns, columns, 1}};
  *matrix_address = all + layout.matrix(id) * static_cast<int64_t>(size_of(rnn->type));
  if (id == 8) return CUDNN_STATUS_SUCCESS;
  *bias = {rnn->type, {1, rows, 1}, {rows, 1, 1}};
  *bias_address = all + layout.bias(id) * static_cast<int64_t>(size_of(rnn->type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t, const int32_t*,
                              cudnnRNNDataDescriptor_t x_desc, const void* x, cudnnRNNDataDescriptor_t y_desc, void* y,
                              cudnnTensorDescriptor_t h_desc, const void* hx, void* hy, cudnnTensorDescriptor_t c_desc,
                              const void* cx, void* cy, size_t weight_bytes, const void* weights, size_t, void*,
                              size_t reserve_bytes, void* reserve) {
  if (!handle || !agree(*rnn, *x_desc, *y_desc) || weight_bytes != weight_bytes_of(*rnn) ||
      reserve_bytes != reserve_bytes_of(*rnn, *x_desc) || !is_state(*h_desc, *rnn, x_desc->batch, rnn->output) ||
      !is_state(*c_desc, *rnn, x_desc->batch, rnn->cells))
    return CUDNN_STATUS_BAD_PARAM;
  const Lstm l{layout_of(*rnn),
               x_desc->steps,
               x_desc->batch,
               handle->stream,
               weights,
               x,
               hx,
               cx,
               y,
               static_cast<double*>(reserve)};
  return with_type(*rnn, [&](auto zero) { return emulated_cudnn::forward<decltype(zero)>(l, hy, cy); });
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t*,
                                      cudnnRNNDataDescriptor_t y_desc, const void* y, const void* dy,
                                      cudnnRNNDataDescriptor_t x_desc, void* dx, cudnnTensorDescriptor_t,
                                      const void* hx, const void* dhy, void* dhx, cudnnTensorDescriptor_t,
                                      const void* cx, const void* dcy, void* dcx, size_t weight_bytes,
                                      const void* weights, size_t work_bytes, void* work, size_t reserve_bytes,
                                      void* reserve) {
  if (!handle || !agree(*rnn, *x_desc, *y_desc) || weight_bytes != weight_bytes_of(*rnn) ||
      work_bytes != work_bytes_of(*rnn, *x_desc) || reserve_bytes != reserve_bytes_of(*rnn, *x_desc))
    return CUDNN_STATUS_BAD_PARAM;
  if (dhy || dcy || dhx || dcx) return CUDNN_STATUS_NOT_SUPPORTED;  // the reference has no gradients of states
  const Lstm l{layout_of(*rnn),
               x_desc->steps,
               x_desc->batch,
               handle->stream,
               weights,
               nullptr,
               hx,
               cx,
               const_cast<void*>(y),
               static_cast<double*>(reserve)};
  return with_type(*rnn, [&](auto zero) {
    return emulated_cudnn::backward_data<decltype(zero)>(l, dy, dx, static_cast<double*>(work));
  });
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t,
                                         const int32_t*, cudnnRNNDataDescriptor_t x_desc, const void* x,
                                         cudnnTensorDescriptor_t, const void* hx, cudnnRNNDataDescriptor_t y_desc,
                                         const void* y, size_t weight_bytes, void* dweights, size_t, void*,
                                         size_t reserve_bytes, void* reserve) {
  if (!handle || !agree(*rnn, *x_desc, *y_desc) || weight_bytes != weight_bytes_of(*rnn) ||
      reserve_bytes != reserve_bytes_of(*rnn, *x_desc))
    return CUDNN_STATUS_BAD_PARAM;
  const Lstm l{layout_of(*rnn),
               x_desc->steps,
               x_desc->batch,
               handle->stream,
               nullptr,
               x,
               hx,
               nullptr,
               const_cast<void*>(y),
               static_cast<double*>(reserve)};
  return with_type(*rnn, [&](auto zero) { return emulated_cudnn::backward_weights<decltype(zero)>(l, dweights); });
}

}  // extern "C"
